// Many calls at once: with `wait` they wait at their caller and none is lost, with `reject` the excess fails at once.
import t from 'tap';
import { type Isolation, init, kill, shutdown, spawn, withOptions } from '../../runtime/index.ts';
import { until } from '../until.ts';
import { Counter, Link, Probe } from './fixtures/actors.ts';

// The test runner's hooks would triple the start of every worker.
delete process.env.NODE_OPTIONS;
const output: string[] = [];
t.before(() => init({ onOutput: ({ line }) => output.push(line) }));
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

t.test('calls that wait for themselves are named; calls that only take long are not', async (t) => {
  const link = (name: string, isolation: Isolation, maxConcurrency = 1) => spawn(Link, { name, isolation, maxConcurrency });
  const [self, light] = [link('self', 'process'), link('light', 'shared')];
  const [a, b, c] = [link('a', 'thread'), link('b', 'shared'), link('c', 'process')];
  const [left, right] = [link('left', 'thread'), link('right', 'shared')];
  const gate = link('gate', 'thread', 100);
  const wide = link('wide', 'thread', 2);
  const slow = link('slow', 'thread');
  const stuck = [self.pass([self]), light.pass([light]), a.pass([b, c, a]), left.passLater(right, gate), right.passLater(left, gate)];
  for (const call of stuck) call.catch(() => {});
  t.equal(await wide.pass([wide]), 1, 'room for both');
  // Others wait behind a slow call, and it waits for somebody who is busy: nothing of that is a circle.
  const waits = [slow.passLater(gate, gate), slow.pass([gate]), slow.pass([]), gate.wait(4000)];
  const told = (): string[] => output.filter((line) => line.includes('calls wait for each other'));
  await until('warnings', () => told().length >= 5);
  await Promise.all(waits);
  const circles = told().map((line) => line.split(': ')[1]!.split('. ')[0]);
  t.same(circles.filter((path) => !path!.startsWith('left') && !path!.startsWith('right')).sort(), [
    'a.pass() -> b.pass() -> c.pass() -> a.pass()',
    'light.pass() -> light.pass()',
    'self.pass() -> self.pass()',
  ]);
  t.same(
    circles.filter((path) => path!.startsWith('left')),
    ['left.passLater() -> right.pass(), behind right.passLater() -> left.pass()'],
  );
  t.ok(told().every((line) => /spawn \w+ with a larger maxConcurrency/.test(line)));
  await Promise.all([self, light, a, left, right].map((actor) => kill(actor)));
});
