// Pools, queues and groups of actors.
import t from 'tap';
import {
  type ActorHandle,
  ActorPool,
  createQueue,
  get,
  init,
  kill,
  type ObjectRef,
  onActorChange,
  ready,
  shutdown,
  spawn,
  spawnGroup,
  withOptions,
} from '../../runtime/index.ts';
import { Broken, Counter, Probe } from './fixtures/actors.ts';

delete process.env.NODE_OPTIONS;
t.before(() => init({ onOutput: () => {} }));
t.teardown(() => shutdown());

const failure = (ref: PromiseLike<unknown>): Promise<Error & { code?: string; details?: Record<string, unknown>; cause?: unknown }> =>
  ref.then(
    (value) => {
      throw new Error(`answered ${String(value)}`);
    },
    (error: unknown) => error,
  ) as Promise<Error & { code?: string }>;
const range = (n: number): number[] => Array.from({ length: n }, (_, i) => i);
const probe = (): ActorHandle<typeof Probe> => spawn(Probe, { isolation: 'thread', maxConcurrency: 10 });

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const list: T[] = [];
  for await (const item of items) list.push(item);
  return list;
}

t.test('ActorPool', async (t) => {
  const [a, b] = [probe(), probe()];
  await Promise.all([ready(a), ready(b)]);

  await t.test('map answers in order, mapUnordered as answers come', async (t) => {
    const pool = new ActorPool([a, b], { perActor: 2 });
    t.same(await all(pool.map(range(50), (actor, value) => actor.echo(value))), range(50));
    const unordered = (await all(pool.mapUnordered(range(50), (actor, value, index) => actor.echo(value + index)))) as number[];
    t.same(
      unordered.sort((x, y) => x - y),
      range(50).map((i) => 2 * i),
    );
    // The first is held back, so an unordered reader sees others before it, an ordered one nothing.
    const gated = pool.mapUnordered(range(4), (actor, value) => (value === 0 ? actor.block() : actor.echo('quick')));
    t.same([(await gated.next()).value, (await gated.next()).value, (await gated.next()).value], ['quick', 'quick', 'quick']);
    while ((await a.open()) + (await b.open()) === 0);
    t.equal((await gated.next()).value, 'opened');
    t.equal((await gated.next()).done, true);
    t.equal(pool.free, 4);
  });

  await t.test('values are taken no faster than they are read', async (t) => {
    let taken = 0;
    let returned = false;
    async function* source(): AsyncGenerator<number> {
      try {
        for (;;) yield taken++;
      } finally {
        returned = true;
      }
    }
    const pool = new ActorPool([a, b]);
    const seen: number[] = [];
    for await (const value of pool.map(source(), (actor, value) => actor.echo(value))) {
      seen.push(value as number);
      t.ok(taken <= seen.length + 4, `${taken} taken, ${seen.length} read`);
      if (seen.length === 20) break;
    }
    t.same(seen, range(20));
    t.equal(returned, true);
  });

  await t.test('a failure ends the map at its place; a dead actor leaves the pool', async (t) => {
    const pool = new ActorPool([a, b]);
    const seen: number[] = [];
    await t.rejects(
      (async () => {
        for await (const value of pool.map(range(10), (actor, value) => (value === 3 ? actor.fail('here') : actor.echo(value))))
          seen.push(value as number);
      })(),
      { name: 'TypeError', message: 'failed: here' },
    );
    t.same(seen, [0, 1, 2]);
    const mortal = probe();
    await ready(mortal);
    pool.add(mortal);
    t.equal(pool.size, 3);
    await kill(mortal);
    const outcomes = await Promise.allSettled(range(6).map((i) => pool.submit((actor) => actor.echo(i))));
    t.equal(outcomes.filter(({ status }) => status === 'rejected').length, 1);
    t.equal(pool.size, 2);
    pool.remove(a);
    const last = pool.submit((actor) => actor.block());
    const waiting = failure(pool.submit((actor) => actor.echo(1)));
    pool.remove(b);
    t.match(await waiting, { code: 'SINKFLEX_POOL_EMPTY' });
    t.match(await failure(pool.submit((actor) => actor.echo(1))), { code: 'SINKFLEX_POOL_EMPTY' });
    while ((await b.open()) === 0);
    t.equal(await last, 'opened');
    t.throws(() => new ActorPool([a], { perActor: 0 }), { code: 'SINKFLEX_BAD_OPTION' });
  });
  await Promise.all([kill(a), kill(b)]);
});

t.test('Queue', async (t) => {
  const queue = createQueue<number>({ maxSize: 3, name: 'queue', isolation: 'thread' });
  await queue.putMany([1, 2]);
  await queue.put(3);
  t.equal(await queue.size(), 3);
  t.match(await failure(queue.put(4, { timeoutMs: 0 })), { code: 'SINKFLEX_QUEUE_TIMEOUT', message: 'the queue had not room within 0 ms' });
  t.match(await failure(queue.put(4, { timeoutMs: 10 })), { code: 'SINKFLEX_QUEUE_TIMEOUT' });
  t.match(await failure(queue.putMany([1, 2, 3, 4])), { code: 'SINKFLEX_BAD_OPTION' });

  // Who waits is served in order of arrival, and what is put goes to whoever waits.
  const puts = [queue.put(4), queue.putMany([5, 6])];
  t.equal(await queue.get(), 1);
  await puts[0];
  t.same(await queue.getMany(10), [2, 3, 4]);
  await puts[1];
  t.same(await queue.getMany(2), [5, 6]);
  t.match(await failure(queue.get({ timeoutMs: 5 })), { code: 'SINKFLEX_QUEUE_TIMEOUT', message: 'the queue had not an item within 5 ms' });
  const gets = range(3).map(() => queue.get());
  await queue.putMany([7, 8, 9]);
  t.same(await get(gets), [7, 8, 9]);

  // A consumer that gives up takes nothing along.
  const abort = new AbortController();
  const given = failure(withOptions(queue, { signal: abort.signal }).get());
  await queue.size();
  abort.abort();
  t.match(await given, { code: 'SINKFLEX_CALL_ABORTED' });
  await queue.put(10);
  t.equal(await queue.get({ timeoutMs: 1000 }), 10);

  // Its handle is an argument like any other, and its content outlives a planned restart.
  await queue.put(11);
  await kill(queue, { drain: true, restart: true });
  await queue.put(12);
  const waiting = [queue.put(13), queue.put(14), failure(queue.put(15))] as const;
  await queue.size();
  await queue.close();
  t.match(await waiting[2], { code: 'SINKFLEX_QUEUE_CLOSED' });
  await failure(waiting[1]);
  t.match(await failure(queue.put(16)), { code: 'SINKFLEX_QUEUE_CLOSED' });
  t.same(await queue.getMany(10), [11, 12, 13]);
  t.match(await failure(queue.get()), { code: 'SINKFLEX_QUEUE_CLOSED' });
  for (const maxSize of [0, 1.5, -1]) t.throws(() => createQueue({ maxSize }), { code: 'SINKFLEX_BAD_OPTION' });
  await kill(queue);
});

t.test('groups', async (t) => {
  const group = spawnGroup(Probe, 3, {
    isolation: 'thread',
    args: (rank): [string] => [`label ${rank}`],
    name: 'probe',
    maxConcurrency: 4,
  });
  await group.ready();
  t.equal(group.size, 3);
  t.same(await group.call.label(), ['label 0', 'label 1', 'label 2']);
  t.same(
    (await group.call.who()).map(({ name }) => name),
    ['probe-0', 'probe-1', 'probe-2'],
  );
  t.same(await group.broadcast.sum([1, 2, 3]), [6, 6, 6]);
  t.same(
    (await group.broadcast.inspect(Float32Array.of(1, 2))).map(({ sum }) => sum),
    [3, 3, 3],
  );
  t.same(await group.map((member, rank) => member.echo(rank * rank)), [0, 1, 4]);
  t.equal(await group.at(2).label(), 'label 2');
  t.throws(() => group.at(3), { message: 'the group has ranks 0 to 2, not 3' });

  const upper = group.slice(1);
  t.same(await upper.call.label(), ['label 1', 'label 2']);
  t.equal(await upper.at(2).label(), 'label 2');
  t.same(await group.slice(1, 2).call.label(), ['label 1']);
  t.match(await failure(upper.map((member, rank) => (rank === 2 ? member.fail('of two') : member.echo(rank)))), {
    code: 'SINKFLEX_RANK_FAILED',
    message: 'rank 2: failed: of two',
    details: { rank: 2 },
    cause: { name: 'TypeError' },
  });
  // @ts-expect-error not a method of the class
  t.equal(group.call.nothing, undefined);
  t.equal((group.call as unknown as { then: unknown }).then, undefined);
  const types = async (): Promise<void> => {
    const sums: number[] = await group.call.sum([1]);
    const lent: ObjectRef<Float32Array> = group.at(0).floats(1);
    await group.call.inspect(lent);
    // @ts-expect-error a wrong argument
    await group.call.sum('x');
    void sums;
  };
  t.type(types, 'function');
  t.throws(() => group.onRestart(() => {}), { code: 'SINKFLEX_BAD_OPTION' });
  await group.kill();
  t.match(await failure(group.call.label()), { code: 'SINKFLEX_RANK_FAILED', cause: { code: 'SINKFLEX_ACTOR_DIED' } });
  t.throws(() => spawnGroup(Counter, 0), { code: 'SINKFLEX_BAD_OPTION' });
  t.throws(() => spawnGroup(Counter, 1, { supervision: 'none' as never }), { code: 'SINKFLEX_BAD_OPTION' });
});

t.test('one-for-all: a death restarts all, until the budget is spent', async (t) => {
  const group = spawnGroup(Probe, 3, {
    isolation: 'thread',
    args: ['x'],
    name: 'together',
    supervision: 'one-for-all',
    maxRestarts: 1,
    restartBackoffMs: 0,
    maxConcurrency: 4,
  });
  await group.ready();
  const restarted = new Promise<number>((resolve) => group.onRestart(resolve));
  await group.call.note('old');
  const under = failure(group.at(0).block());
  await group.at(0).who();
  t.match(await failure(group.at(1).exit(3)), { code: 'SINKFLEX_ACTOR_DIED', details: { exitCode: 3 } });
  t.equal(await restarted, 1);
  await group.ready();
  t.match(await under, { code: 'SINKFLEX_ACTOR_DIED', details: { reason: 'killed' } });
  t.same(
    (await group.call.who()).map(({ incarnation }) => incarnation),
    [2, 2, 2],
  );
  t.same(await group.call.notes(), [[], [], []]);

  const names = new Set<string>();
  const dead = new Promise<void>((resolve) => {
    const stop = onActorChange(({ name, state }) => {
      if (state === 'dead') names.add(name);
      if (names.size < 3) return;
      stop();
      resolve();
    });
  });
  t.match(await failure(group.at(2).exit(4)), { code: 'SINKFLEX_ACTOR_DIED' });
  await dead;
  t.same([...names].sort(), ['together-0', 'together-1', 'together-2']);
  t.match(await failure(group.call.who()), { code: 'SINKFLEX_RANK_FAILED' });

  const broken = spawnGroup(Broken, 2, {
    isolation: 'thread',
    args: ['cannot'],
    supervision: 'one-for-all',
    maxRestarts: 1,
    restartBackoffMs: 0,
  });
  t.match(await failure(broken.ready()), { code: 'SINKFLEX_RANK_FAILED', message: /^rank [01]: .*cannot/ });
});
