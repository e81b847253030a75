// Concurrency groups, lifecycle hooks and counters of actors; how little an idle one weighs.
import t from 'tap';
import { ActorDiedError, type ActorOutput, defineActor, get, init, kill, shutdown, spawn, withOptions } from '../../runtime/index.ts';
import { until } from '../until.ts';
import { Busy, Ledger, RefSaver } from './fixtures/hooks.ts';

delete process.env.NODE_OPTIONS;
const lines: ActorOutput[] = [];
t.before(() => init({ onOutput: (line) => void lines.push(line) }));
t.teardown(() => shutdown());

const said = (name: string): string[] => lines.filter((line) => line.name.startsWith(name)).map((line) => line.line);

t.test('concurrency groups', async (t) => {
  const busy = spawn(Busy, { isolation: 'process', name: 'busy' });
  const first = busy.generate('a');
  const second = busy.generate('b');
  // In groups of their own, these overtake what waits behind generate().
  t.match(await busy.health(), { under: 1, most: 1 });
  t.same(await get([busy.read('r1'), busy.read('r2')]), ['r1', 'r2']);
  t.equal(await busy.open(), 1);
  t.equal(await first, 'a');
  // A call may ask for a group that its definition does not give it.
  await withOptions(busy, { concurrencyGroup: 'io' }).note('noted');
  let opened = await busy.open();
  while (opened === 0) opened = await busy.open();
  t.equal(await second, 'b');
  const { log, most } = await busy.health();
  t.equal(most, 1, 'the limit of spawn holds for what is in no group');
  t.same(
    log.filter((line) => /begin|end/.test(line)),
    ['begin a', 'end a', 'begin b', 'end b'],
  );
  t.ok(log.indexOf('noted') < log.indexOf('end b'));
  await t.rejects(Promise.resolve(withOptions(busy, { concurrencyGroup: 'nowhere' }).note('x')), {
    code: 'SINKFLEX_BAD_OPTION',
    message: 'actor busy (Busy) has no concurrency group "nowhere"',
  });
  t.throws(() => withOptions(busy, { concurrencyGroup: '' }), { code: 'SINKFLEX_BAD_OPTION' });
  await kill(busy);
});

t.test('what a definition says of groups is checked', async (t) => {
  class Small {
    a(): number {
      return 1;
    }
    b(): void {}
  }
  const define = (concurrencyGroups: Record<string, { maxConcurrency: number; methods?: readonly ('a' | 'b')[] }>): unknown =>
    defineActor(import.meta.url, 'Small', Small, { concurrencyGroups });
  t.throws(() => define({ io: { maxConcurrency: 0 } }), {
    message: 'actor Small: maxConcurrency of group io is 0; it must be an integer of at least 1',
  });
  t.throws(() => define({ io: { maxConcurrency: 1, methods: ['c' as 'a'] } }), {
    message: /names c\(\), which the class does not declare/,
  });
  t.throws(() => define({ x: { maxConcurrency: 1, methods: ['a'] }, y: { maxConcurrency: 1, methods: ['a'] } }), {
    message: /in the groups x and y/,
  });
  // @ts-expect-error no such method
  t.throws(() => defineActor(import.meta.url, 'Small', Small, { concurrencyGroups: { io: { maxConcurrency: 1, methods: ['zzz'] } } }));
});

for (const isolation of ['process', 'thread', 'shared'] as const) {
  t.test(`hooks, isolation ${isolation}`, async (t) => {
    const ledger = spawn(Ledger, { isolation, name: `ledger-${isolation}`, maxRestarts: 3, restartBackoffMs: 0 });
    t.same(await ledger.add(2), 2);
    t.match(await ledger.state(), { ran: ['constructor', 'start'], incarnation: 1 });

    await t.test('drain: accepted calls finish, the state is saved, the next incarnation restores it', async (t) => {
      const accepted = [1, 1, 1].map((by) => ledger.slowAdd(by));
      await ledger.state(); // in another group, and sent later: so they have arrived
      const killed = kill(ledger, { drain: true, restart: true });
      const late = ledger.add(1000).catch((error: unknown) => error);
      t.same(await get(accepted), [3, 4, 5]);
      await killed;
      const outcome = await late;
      if (typeof outcome !== 'number') t.match(outcome, { code: 'SINKFLEX_ACTOR_DIED', mayHaveRun: false });
      const state = await ledger.state();
      t.match(state, { ran: ['constructor', 'restore', 'start'], incarnation: 2 });
      t.same([state.total, state.notes], typeof outcome === 'number' ? [outcome, 5] : [5, 4]);
    });

    await t.test('drain() can end what is under way, and is followed by stop()', async (t) => {
      const waiting = ledger.untilDrained();
      await ledger.state();
      await kill(ledger, { drain: true, restart: true });
      const total = await waiting;
      t.match(await ledger.state(), { total, incarnation: 3 });
      await until('it was stopped', () => said(`ledger-${isolation}`).includes(`stop ${total}`) || isolation === 'shared');
    });

    await t.test('currentActor().checkpoint() saves now; a death goes back to it', async (t) => {
      if (isolation === 'process') {
        const { total } = await ledger.state();
        await ledger.add(7);
        await ledger.save();
        await ledger.add(1_000_000);
        await t.rejects(Promise.resolve(ledger.die()), ActorDiedError);
        t.match(await ledger.state(), { total: total + 7, incarnation: 4 });
      }
      const saver = spawn(RefSaver, { isolation });
      await t.rejects(Promise.resolve(saver.save()), {
        code: 'SINKFLEX_NOT_SERIALIZABLE',
        message: /checkpoint of actor RefSaver-\d+ holds a ref/,
      });
      await kill(saver);
    });
    await kill(ledger);
  });
}

t.test('a plain kill does not save; a drain has an end', async (t) => {
  const ledger = spawn(Ledger, { isolation: 'thread', name: 'plain' });
  await ledger.add(3);
  await kill(ledger, { restart: true });
  t.match(await ledger.state(), { total: 0, ran: ['constructor', 'start'] });
  const busy = spawn(Busy, { isolation: 'thread', name: 'never' });
  const stuck = busy.generate('x').catch((error: unknown) => error);
  const queued = busy.generate('y').catch((error: unknown) => error);
  await busy.health();
  const began = Date.now();
  await kill(busy, { drain: true, timeoutMs: 400 });
  t.ok(Date.now() - began < 30_000);
  t.match(await stuck, { code: 'SINKFLEX_ACTOR_DIED', mayHaveRun: true });
  t.match(await queued, { code: 'SINKFLEX_ACTOR_DIED', mayHaveRun: false });
  await kill(ledger);
});

t.test('checkpointIntervalMs saves what has changed', async (t) => {
  const ledger = spawn(Ledger, { name: 'periodic', maxRestarts: 1, restartBackoffMs: 0, checkpointIntervalMs: 10 });
  await ledger.add(41);
  // The interval is the actor's own clock: it has passed when calls after it have been answered.
  await ledger.slowAdd(1);
  for (let i = 0; i < 10; i++) await ledger.slowAdd(0);
  await ledger.die().catch(() => {});
  const { total, ran } = await ledger.state();
  t.same(ran, ['constructor', 'restore', 'start']);
  t.ok(total >= 41, String(total));
  await kill(ledger);
});

t.test('a method that keeps the loop is named, once', async (t) => {
  const busy = spawn(Busy, { name: 'spinner' });
  await busy.spin(1050);
  await busy.spin(1050);
  await until('it spins', () => said('spinner').length > 0);
  t.match(said('spinner').join('\n'), /Busy\.spin\(\) kept the event loop for 1\d\d\d ms/);
  t.equal(said('spinner').filter((line) => line.includes('kept the event loop')).length, 1);
  await kill(busy);
});

t.test('counters, and a recorder while somebody listens', async (t) => {
  const busy = spawn(Busy, { isolation: 'process', name: 'counted' });
  busy.note('before');
  const under = busy.generate('g1');
  const queued = busy.generate('g2');
  await busy.read('r');
  t.same(await busy.counts(), {
    kind: 'Busy',
    name: 'counted',
    incarnation: 1,
    mailbox: 1,
    running: 2,
    methods: {
      note: { started: 1, finished: 1, failed: 0 },
      generate: { started: 1, finished: 0, failed: 0 },
      read: { started: 1, finished: 1, failed: 0 },
      counts: { started: 1, finished: 0, failed: 0 },
    },
  });
  t.same(await busy.record(true), []);
  await busy.fail('boom').catch(() => {});
  await busy.read('recorded');
  const records = await busy.record(false);
  t.match(
    records.map(({ method, ok, caller }) => ({ method, ok, caller })),
    [
      { method: 'fail', ok: false, caller: 0 },
      { method: 'read', ok: true, caller: 0 },
    ],
  );
  t.ok(records.every(({ startedAt, durationMs, name }) => startedAt > 0 && durationMs >= 0 && name === 'counted'));
  await busy.read('no more');
  t.equal((await busy.record(false)).length, records.length);
  while ((await busy.open()) === 0);
  while ((await busy.open()) === 0);
  t.same(await get([under, queued]), ['g1', 'g2']);
  await kill(busy);
});
