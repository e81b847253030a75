// Plans of faults: what they may say, and what they do to the actors of one program. Clusters are in test/faults.
import t from 'tap';
import { checkFaultPlan, faultReportText, init, injectFaults, listActors, ready, shutdown, spawn } from '../../runtime/index.ts';
import { emulate, Lane, messagesDone } from '../../runtime/links/emulation.ts';
import { until } from '../until.ts';
import { Counter } from './fixtures/actors.ts';

delete process.env.NODE_OPTIONS;

t.test('what a plan may say', async (t) => {
  const read = await checkFaultPlan({ faults: [{ fault: 'stop', target: { actor: 'a-*' }, at: '1.5s', for: '250ms' }] });
  t.match(read, { seed: 1, faults: [{ fault: 'stop', at: 1500, for: 250, probability: 1 }] });
  const wrong: [object, RegExp][] = [
    [{ fault: 'explode', target: { head: true }, at: 0 }, /fault/],
    [{ fault: 'kill', target: { head: true } }, /says not when/],
    [{ fault: 'kill', target: { head: true }, at: 0, step: 1 }, /at and step/],
    [{ fault: 'kill', target: { head: true }, every: 0 }, /never over/],
    [{ fault: 'kill', target: { planet: 'x' }, at: 0 }, /target/],
    [{ fault: 'kill', target: { head: true }, at: 'soon' }, /a time such as 250ms/],
    [{ fault: 'links', target: { node: 'n' }, at: 0, drop: 2 }, /drop/],
    [{ fault: 'kill', target: { driver: true }, at: 0 }, /target/],
    [{ fault: 'kill', target: { head: true }, at: 0, whenever: 1 }, /whenever/],
  ];
  for (const [fault, message] of wrong) await t.rejects(checkFaultPlan({ faults: [fault] }), { code: 'SINKFLEX_BAD_FAULTS', message });
});

t.test('actors of one program: killed, stopped, restarted, with a report', async (t) => {
  await init();
  t.teardown(() => shutdown());
  const counters = [0, 1].map((i) => spawn(Counter, { name: `counter-${i}`, maxRestarts: 5, restartBackoffMs: 0 }));
  await Promise.all(counters.map((counter) => ready(counter)));
  await t.rejects(injectFaults({ faults: [{ fault: 'kill', target: { head: true }, at: 0 }] }), { code: 'SINKFLEX_BAD_FAULTS' });
  for (const target of [{ head: true as const }, { node: 'n' }])
    await t.rejects(injectFaults({ faults: [{ fault: 'restart', target, at: 0 }] }), {
      code: 'SINKFLEX_BAD_FAULTS',
      message: /nothing here starts it again/,
    });
  const faults = await injectFaults({
    seed: 5,
    faults: [
      { fault: 'kill', target: { actor: 'counter-0' }, step: 2 },
      { fault: 'restart', target: { actor: 'counter-1' }, everyStep: true, times: 1 },
      { fault: 'kill', target: { actor: 'counter-*' }, everyStep: true, probability: 0 },
    ],
  });
  await faults.now({ fault: 'slow', target: { actor: 'counter-*', all: true }, for: 200 });
  faults.step(1);
  faults.step(2);
  faults.step(2);
  const report = await faults.end();
  t.same(report.injected.map(({ fault, target }) => `${fault} ${target}`).sort(), [
    'kill actor counter-0',
    'restart actor counter-1',
    'slow actor counter-0',
    'slow actor counter-1',
  ]);
  t.same(report.lost, { actors: [] });
  t.match(
    await faultReportText(report),
    /faults \(seed 5\): 4 in .*\n[\s\S]*kill actor counter-0 \(.*step 2\): recovered after[\s\S]*lost: nothing/,
  );
  t.same(
    listActors().map(({ name, incarnation, state }) => [name, incarnation, state]),
    [
      ['counter-0', 2, 'alive'],
      ['counter-1', 2, 'alive'],
    ],
  );
  t.equal(await faults.end(), report, 'the report is made once');
});

t.test('messages on order: the same seed spoils the same ones', async (t) => {
  const play = async (seed: number): Promise<string> => {
    const got: string[] = [];
    const lane = new Lane('out', { room: 'link', host: 'there' }, () => got.push('severed'));
    const elsewhere = new Lane('out', { room: 'link', host: 'elsewhere' }, () => {});
    emulate({ rules: { host: 'there', drop: 0.2, duplicate: 0.2, corrupt: 0.2, delayMs: 1, requestLost: 0.02 }, seed, forMs: 100 });
    for (let i = 0; i < 100; i++) lane.pass(Buffer.from([i]), (data) => got.push(String(data[0])));
    elsewhere.pass(Buffer.from([7]), (data) => t.equal(data[0], 7, 'others are left alone'));
    await until('most are there', () => got.length >= 70);
    await new Promise((resolve) => setTimeout(resolve, 120)); // it is over
    lane.pass(Buffer.from([1]), () => got.push('clean'));
    lane.close();
    return got.join();
  };
  const before = messagesDone();
  const [one, again, other] = [await play(1), await play(1), await play(2)];
  t.equal(one, again);
  t.not(one, other);
  t.match(one, /clean$/);
  const after = messagesDone();
  for (const what of ['dropped', 'duplicated', 'corrupted', 'severed'] as const) t.ok(after[what] > before[what], what);
});
