// Many calls at once: with `wait` they wait at their caller and none is lost, with `reject` the excess fails at once.
import t from 'tap';
import { init, kill, shutdown, spawn, withOptions } from '../../runtime/index.ts';
import { Counter, Probe } from './fixtures/actors.ts';

// The test runner's hooks would triple the start of every worker.
delete process.env.NODE_OPTIONS;
t.before(() => init({ onOutput: () => {} }));
t.teardown(() => shutdown());

t.test('wait: no more calls are under way than the mailbox takes, and all are answered in order', async (t) => {
  const counter = spawn(Counter, { isolation: 'thread', maxPending: 7 });
  const early = Array.from({ length: 5000 }, () => counter.add(1)); // before it is alive
  const later = Array.from({ length: 5000 }, () => counter.add(1));
  t.same(
    await Promise.all([...early, ...later]),
    Array.from({ length: 10_000 }, (_, i) => i + 1),
  );
  const probe = spawn(Probe, { isolation: 'thread', maxPending: 0, maxConcurrency: 3 });
  const blocked = [probe.block(), probe.block(), probe.block()];
  // A mailbox without room takes what runs: the fourth waits here, whatever happens to it there.
  const fourth = withOptions(probe, { timeoutMs: 100 }).label();
  t.match(await fourth.catch((e: unknown) => e), { code: 'SINKFLEX_CALL_TIMEOUT', details: { mayHaveRun: false } });
  await kill(probe);
  for (const ref of blocked) await t.rejects(Promise.resolve(ref), { code: 'SINKFLEX_ACTOR_DIED' });
});

t.test('what waits is what was given, whatever the caller does to it afterwards', async (t) => {
  const probe = spawn(Probe, { isolation: 'thread', maxPending: 1 });
  const list = [1];
  const echoes = Array.from({ length: 10 }, (_, i) => {
    list[0] = i;
    return probe.echo({ list });
  });
  list[0] = 99;
  t.same(
    await Promise.all(echoes),
    Array.from({ length: 10 }, (_, i) => ({ list: [i] })),
  );
  t.throws(() => withOptions(probe, { maxRetries: -1 }), { code: 'SINKFLEX_BAD_OPTION' });
});

t.test('reject: what does not fit fails at once, also before the actor is alive', async (t) => {
  const probe = spawn(Probe, { isolation: 'thread', maxPending: 10, onFull: 'reject' });
  const early = Array.from({ length: 100 }, () => probe.label());
  const outcomes = await Promise.allSettled(early);
  t.equal(outcomes.filter(({ status }) => status === 'fulfilled').length, 11, 'one that runs and ten that wait');
  const blocked = probe.block();
  const calls = Array.from({ length: 1000 }, () => probe.label());
  let refused = 0;
  for (const call of calls) call.catch((e: unknown) => (e as { code: string }).code === 'SINKFLEX_ACTOR_BUSY' && refused++);
  await null;
  await null;
  t.equal(refused, 990, 'in the same turn');
  await kill(probe);
  await t.rejects(Promise.resolve(blocked), { code: 'SINKFLEX_ACTOR_DIED' });
});
