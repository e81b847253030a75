// Streaming methods: items in order, no further ahead than the window, and an end on whichever side comes first.
import t from 'tap';
import {
  type ActorHandle,
  CallTimeoutError,
  cancel,
  init,
  kill,
  type ObjectRef,
  type ObjectStream,
  ready,
  shutdown,
  spawn,
  withOptions,
} from '../../runtime/index.ts';
import { Probe, Source } from './fixtures/actors.ts';

// The test runner's hooks would triple the start of every worker.
delete process.env.NODE_OPTIONS;
t.before(() => init({ onOutput: () => {} }));
t.teardown(() => shutdown());

/** Fails to compile unless both types are the same. */
function sameType<A, B>(..._proof: (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? [] : [never]): void {}

async function collect<T>(stream: AsyncIterable<T>): Promise<T[]> {
  const items: T[] = [];
  for await (const item of stream) items.push(item);
  return items;
}

/** Items up to the error, and the error. */
async function untilError(stream: AsyncIterable<unknown>): Promise<{ items: unknown[]; error: unknown }> {
  const items: unknown[] = [];
  try {
    for await (const item of stream) items.push(item);
  } catch (error) {
    return { items, error };
  }
  return { items, error: undefined };
}

const upTo = (n: number): number[] => Array.from({ length: n }, (_, i) => i);

t.test('generators have the types of streams, other methods those of refs', (t) => {
  const types = (source: ActorHandle<typeof Source>): void => {
    sameType<ReturnType<typeof source.count>, ObjectStream<number>>();
    sameType<ReturnType<typeof source.squares>, ObjectStream<number>>();
    sameType<ReturnType<typeof source.arrays>, ObjectStream<Float32Array>>();
    sameType<ReturnType<typeof source.ended>, ObjectRef<string[]>>();
  };
  t.type(types, 'function');
  t.end();
});

for (const isolation of ['process', 'thread', 'shared'] as const) {
  t.test(`isolation ${isolation}`, async (t) => {
    const source = spawn(Source, { isolation, maxConcurrency: 8 });
    const early = collect(source.count(5)); // before it is alive
    const probe = spawn(Probe, { isolation, maxConcurrency: 8 });
    t.same(await early, upTo(5));
    await ready(probe);

    await t.test('items arrive in order, whatever the window', async (t) => {
      for (const streamWindow of [1, 2, 3, 64]) t.same(await collect(withOptions(source, { streamWindow }).count(200)), upTo(200));
      t.same(
        await collect(source.squares(100)),
        upTo(100).map((i) => i * i),
      );
      t.same(await collect(source.count(0)), []);
      const arrays = await collect(source.arrays(3, 30_000));
      t.same(
        arrays.map((array) => [array.length, array[0], array[29_999]]),
        [
          [30_000, 0, 0],
          [30_000, 1, 1],
          [30_000, 2, 2],
        ],
      );
      t.same(
        await collect(source.relay(source, 50)),
        upTo(50).map((i) => i + 1),
        'an actor reads a stream too',
      );
    });

    await t.test('a stream that nobody reads holds only its window', async (t) => {
      const before = await source.yielded();
      const stream = withOptions(source, { streamWindow: 10 }).count(1_000_000);
      const iterator = stream[Symbol.asyncIterator]();
      t.same(await iterator.next(), { done: false, value: 0 });
      t.ok((await source.yielded()) - before <= 10);
      for (let i = 1; i < 20; i++) t.same(await iterator.next(), { done: false, value: i });
      t.ok((await source.yielded()) - before <= 30);
      await stream.return();
      t.same(await iterator.next(), { done: true, value: undefined });
      while ((await source.ended()).at(-1) !== 'finally');
      t.ok((await source.yielded()) - before <= 30, 'the generator ended with its reader');
    });

    await t.test('break, using and cancel end the generator; several readers of one stream share its items', async (t) => {
      const ends = async (): Promise<number> => (await source.ended()).length;
      let before = await ends();
      for await (const i of source.count(1_000_000)) if (i === 3) break;
      while ((await ends()) === before);
      before = await ends();
      {
        await using stream = source.count(1_000_000);
        await stream.next();
      }
      while ((await ends()) === before);
      before = await ends();
      const hanging = source.hang();
      t.same(await hanging.next(), { done: false, value: 'begun' });
      const waiting = hanging.next();
      await hanging.return();
      t.same(await waiting, { done: true, value: undefined });
      while ((await ends()) === before);
      t.equal((await source.ended()).at(-1), 'aborted', 'its signal aborts');
      const three = source.count(3);
      t.same(await Promise.all([three.next(), three.next(), three.next(), three.next()]), [
        { done: false, value: 0 },
        { done: false, value: 1 },
        { done: false, value: 2 },
        { done: true, value: undefined },
      ]);
    });

    await t.test('errors come after the items before them, once', async (t) => {
      const stream = source.failAfter(3);
      t.match(await untilError(stream), { items: [0, 1, 2], error: { name: 'RangeError', message: 'no more' } });
      t.same(await stream.next(), { done: true, value: undefined });
      t.match(await untilError(source.unsendable()), { items: [1], error: { code: 'SINKFLEX_NOT_SERIALIZABLE' } });
      t.match(await probe.echo(source.count(1) as never).catch((e: unknown) => e), { code: 'SINKFLEX_NOT_SERIALIZABLE' });
    });

    await t.test('deadlines and signals cover the whole stream', async (t) => {
      const { items, error } = await untilError(withOptions(source, { timeoutMs: 200 }).hang());
      t.ok(items.length <= 1);
      t.ok(error instanceof CallTimeoutError);
      const controller = new AbortController();
      const stream = withOptions(source, { signal: controller.signal }).count(1_000_000);
      await stream.next();
      controller.abort();
      t.match(await untilError(stream), { error: { code: 'SINKFLEX_CALL_ABORTED' } });
      while ((await source.ended()).at(-1) !== 'finally');
    });
  });
}

t.test('a stream is a call: others of its caller wait for it, and it ends with its actor', async (t) => {
  const source = spawn(Source, { isolation: 'thread' });
  const stream = source.count(100);
  const after = source.ended();
  t.same(await collect(stream), upTo(100));
  t.same(await after, ['done', 'finally'], 'one at a time: the next call began when the stream had ended');
  t.match(await untilError(source.dieAfter(5)), {
    items: [0, 1, 2, 3, 4],
    error: { code: 'SINKFLEX_ACTOR_DIED', details: { exitCode: 7, mayHaveRun: true } },
  });
  const killed = spawn(Source, { isolation: 'thread' });
  const hanging = killed.hang();
  await hanging.next();
  const rest = untilError(hanging);
  await kill(killed);
  t.match(await rest, { items: [], error: { code: 'SINKFLEX_ACTOR_DIED', details: { reason: 'killed' } } });
});

t.test('cancel ends a call that waits, and one that runs', async (t) => {
  const probe = spawn(Probe, { isolation: 'thread' });
  await probe.label();
  const running = probe.block();
  const waiting = probe.note('never');
  const seen = withOptions(probe, { cancellable: true }).abortSeen();
  const outcome = (ref: ObjectRef<unknown>): Promise<unknown> => ref.catch((e: unknown) => e);
  const outcomes = [running, waiting, seen].map(outcome);
  t.equal(cancel(waiting), true);
  t.equal(cancel(waiting), false);
  t.equal(cancel(running), true);
  for (const error of await Promise.all(outcomes.slice(0, 2)))
    t.match(error, { code: 'SINKFLEX_CALL_ABORTED', details: { mayHaveRun: true } });
  cancel(seen);
  t.match(await outcomes[2], { code: 'SINKFLEX_CALL_ABORTED' });
  await kill(probe);

  const other = spawn(Probe, { isolation: 'thread', maxConcurrency: 2 });
  const early = other.note('never sent');
  cancel(early);
  t.match(await outcome(early), { code: 'SINKFLEX_CALL_ABORTED', details: { mayHaveRun: false } });
  const noticed = withOptions(other, { cancellable: true }).abortSeen();
  while (!(await other.notes()).includes('begun'));
  cancel(noticed);
  await outcome(noticed);
  while (!(await other.notes()).includes('aborted'));
  t.same(await other.notes(), ['begun', 'aborted']);
  const done = other.label();
  await done;
  t.equal(cancel(done), false);
});
