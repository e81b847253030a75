// Seeing a run from inside: lists, events, logs, metrics, and what happens when a worker does not answer.
import { readdirSync, statSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import t from 'tap';
import {
  init,
  kill,
  listActorLoad,
  listActors,
  listEvents,
  listGroups,
  listNodes,
  listObjects,
  listTasks,
  listWorkers,
  logs,
  metrics,
  put,
  ready,
  shutdown,
  spawn,
  status,
  summary,
  task,
} from '../../runtime/index.ts';
import { EventLog, LogFolder } from '../../runtime/observe/index.ts';
import { LogReader } from '../../runtime/observe/log-reader.ts';
import { listLogs } from '../../runtime/observe/logs.ts';
import { LoopLag, lagQuantile } from '../../runtime/observe/loop-lag.ts';
import { lookUntil } from '../until.ts';
import { Counter, Probe } from './fixtures/actors.ts';
import { add, later } from './fixtures/tasks.ts';

delete process.env.NODE_OPTIONS;
const lines: string[] = [];
let onLine: () => void = () => {};
t.before(() =>
  init({
    onOutput: ({ line }) => {
      lines.push(line);
      onLine();
    },
  }),
);
t.teardown(() => shutdown());

async function written(word: string): Promise<void> {
  while (!lines.some((line) => line.includes(word))) await new Promise<void>((resolve) => (onLine = resolve));
}

t.test('calls are seen where they are: running, queued, waiting for arguments, not sent yet', async (t) => {
  const probe = spawn(Probe, { name: 'gate', isolation: 'thread', maxConcurrency: 1 });
  const other = spawn(Probe, { name: 'other', isolation: 'shared' });
  const source = spawn(Probe, { name: 'source', isolation: 'shared', maxConcurrency: 2 });
  await Promise.all([ready(probe), ready(other), ready(source)]);
  const late = source.block();
  const blocked = probe.block();
  const echoed = Array.from({ length: 5 }, (_, i) => probe.echo(i));
  const waiting = other.echo(late);
  const seen = await lookUntil(
    () => listTasks(),
    ({ items, total }) => total === 8 && items.filter(({ state }) => state === 'running').length === 2,
  );
  t.same(seen.items.map(({ actor, method, state, caller }) => [actor, method, state, caller]).sort(), [
    ['gate', 'block', 'running', 'driver'],
    ...Array.from({ length: 5 }, () => ['gate', 'echo', 'queued', 'driver']),
    ['other', 'echo', 'arguments', 'driver'],
    ['source', 'block', 'running', 'driver'],
  ]);
  const running = seen.items.find(({ actor, state }) => actor === 'gate' && state === 'running');
  t.ok(running !== undefined && running.ageMs! >= running.runningMs! && running.runningMs! >= 0 && running.pid === process.pid);
  t.same(seen.silent, []);

  await t.test('limits say how many there are, filters say of what', async (t) => {
    const few = await listTasks({ limit: 3 });
    t.same([few.items.length, few.total], [3, 8]);
    const queued = await listTasks({ where: { state: 'queued', actor: 'gate' }, limit: 2 });
    t.same([queued.items.length, queued.total], [2, 5]);
    t.equal((await listTasks({ where: { state: '!queued' } })).total, 3);
    await t.rejects(listTasks({ limit: -1 }), { code: 'SINKFLEX_BAD_OPTION' });
    const load = await listActorLoad({ where: { name: 'gate' } });
    t.match(load.items, [{ running: 1, queued: 5, state: 'alive' }]);
    const { calls, actors, workers } = await status();
    t.match(
      { calls, actors, workers },
      { calls: { running: 2, queued: 6 }, actors: { alive: 3 }, workers: { driver: 1, thread: 1, shared: 1 } },
    );
    const rows = (await summary()).items.filter(({ method }) => method === 'block' || method === 'echo');
    t.match(
      rows.find(({ method }) => method === 'echo'),
      { kind: 'Probe', started: 0, running: 0, queued: 6 },
    );
    t.match(
      rows.find(({ method }) => method === 'block'),
      { started: 2, running: 2, queued: 0 },
    );
  });

  await t.test('calls to an actor that is not there wait at their caller', async (t) => {
    const slow = spawn(Probe, { name: 'unborn' });
    const answer = slow.label();
    const { items } = await listTasks({ where: { actor: 'unborn' } });
    t.match(items, [{ state: 'unsent', method: 'label', caller: 'driver' }]);
    await answer;
    await kill(slow);
  });

  // `open` waits behind `block` where one call runs at a time: the actor has to go.
  blocked.catch(() => {});
  for (const echo of echoed) echo.catch(() => {});
  await kill(probe);
  await source.open();
  t.equal(await waiting, 'opened');
  t.equal(
    (
      await lookUntil(
        () => listTasks(),
        ({ total }) => total === 0,
      )
    ).total,
    0,
  );
  await Promise.all([kill(other), kill(source)]);
});

t.test('tasks are seen as well: what runs, what waits for processors, how many there were', async (t) => {
  const abort = new AbortController();
  const all = { cpus: availableParallelism(), signal: abort.signal };
  t.equal(await task(add)(1, 2), 3);
  const calls = [1, 2, 3].map((n) => task(later, all)(n, 60_000));
  for (const call of calls) call.catch(() => {});
  const { items, total } = await lookUntil(
    () => listTasks({ where: { kind: 'task' } }),
    (seen) => seen.items.some(({ state }) => state === 'running'),
  );
  t.match(
    items.map(({ method, state, caller }) => [method, state, caller]),
    [
      ['later', 'running', 'driver'],
      ['later', 'queued', 'driver'],
      ['later', 'queued', 'driver'],
    ],
  );
  t.equal(total, 3);
  abort.abort();
  await Promise.allSettled(calls);
  const rows = (await summary({ where: { kind: 'task' } })).items;
  t.match(
    rows.find(({ method }) => method === 'add'),
    { started: 1, failed: 0, queued: 0 },
  );
  t.match(
    rows.find(({ method }) => method === 'later'),
    { failed: 3, queued: 0 },
  );
  t.match(await metrics(), /sinkflex_calls_started_total\{kind="task",method="add"\} 1/);
});

t.test('values that others hold, with their sizes and holders', async (t) => {
  const probe = spawn(Probe, { name: 'holder', maxConcurrency: 3 });
  await ready(probe);
  const ref = put(new Uint8Array(1000));
  const pending = probe.block();
  const held = probe.readNested({ ref: pending as never }); // waits for it: the driver's own ref goes back and forth
  const { items } = await lookUntil(
    () => listObjects(),
    ({ total }) => total > 0,
  );
  t.match(items, [{ state: 'pending', owner: 'driver', origin: 'block()', holders: [{ name: 'holder', times: 1 }] }]);
  await probe.open();
  await held;
  const lent = probe.lendOne(new Uint8Array(5000));
  const { ref: theirs } = await lent;
  const [object] = (await listObjects({ where: { owner: 'holder' } })).items;
  t.match(object, { state: 'value', origin: 'put()', holders: [{ name: 'driver', times: 1 }] });
  t.ok(object!.bytes! >= 5000 && object!.bytes! < 6000, 'its encoded size');
  theirs.release();
  ref.release();
  const theirsLeft = await lookUntil(
    () => listObjects({ where: { owner: 'holder' } }),
    ({ total }) => total === 0,
  );
  t.equal(theirsLeft.total, 0, 'given back');
  await kill(probe);
  const left = await lookUntil(
    () => listObjects(),
    ({ total }) => total === 0,
  );
  t.equal(left.total, 0, 'what the dead held is held by nobody');
});

t.test('a worker that does not answer is named, with the reason, and what it was sent is seen from its callers', async (t) => {
  const busy = spawn(Probe, { name: 'busy' });
  const frozen = spawn(Counter, { name: 'frozen' });
  await Promise.all([ready(busy), frozen.add(1)]);
  const pid = listActors().find(({ name }) => name === 'frozen')!.pid!;
  lines.length = 0;
  const spinning = busy.spin(60_000);
  spinning.catch(() => {});
  await written('spinning');
  process.kill(pid, 'SIGSTOP');
  const unheard = frozen.add(1);
  const began = performance.now();
  const { items, silent } = await listTasks({ timeoutMs: 200 });
  const took = performance.now() - began;
  t.ok(took < 10_000, `two rounds of 200 ms, and it took ${took}`);
  t.match(
    silent.filter(({ name }) => name === 'busy' || name === 'frozen').map(({ name, why }) => [name, why]),
    [
      ['busy', 'blocked'],
      ['frozen', 'stopped'],
    ],
  );
  t.match(items.map(({ actor, method, state }) => [actor, method, state]).sort(), [
    ['busy', 'spin', 'unanswered'],
    ['frozen', 'add', 'unanswered'],
  ]);
  const workers = await listWorkers({ timeoutMs: 200 });
  t.match(Object.fromEntries(workers.items.map(({ name, state }) => [name, state])), { driver: 'ok', busy: 'blocked', frozen: 'stopped' });
  t.match(await metrics({ timeoutMs: 200 }), /sinkflex_workers\{isolation="process",state="stopped"\} 1/);
  process.kill(pid, 'SIGCONT');
  t.equal(await unheard, 2);
  await Promise.all([kill(busy), kill(frozen)]);
});

t.test('events tell what became of actors and workers; nodes and groups have lists', async (t) => {
  const probe = spawn(Probe, { name: 'mortal', maxRestarts: 1, restartBackoffMs: 0 });
  await ready(probe);
  probe.die('SIGKILL').catch(() => {});
  await lookUntil(
    async () => listActors().find(({ name }) => name === 'mortal')!,
    ({ incarnation, state }) => incarnation === 2 && state === 'alive',
  );
  const { items, total, dropped } = await listEvents({ where: { name: 'mortal' } });
  t.equal(total, items.length);
  t.equal(dropped, 0);
  t.same(
    items.map(({ change }) => change).filter((change, i, all) => change !== all[i - 1]),
    ['starting', 'alive', 'restarting', 'starting', 'alive'],
  );
  t.match(items.find(({ change }) => change === 'restarting')?.details, { cause: /SIGKILL/ });
  const ended = (await listEvents({ where: { what: 'worker', change: 'ended' } })).items.at(-1);
  t.match(ended?.details, { signal: 'SIGKILL' });
  t.equal((await listEvents({ limit: 2 })).items.length, 2);
  t.match(await listNodes(), [{ node: 'local', state: 'up' }]);
  t.same((await listGroups()).items, []);
  await kill(probe);
});

t.test('the event log keeps to its bytes and counts what it forgets', (t) => {
  const log = new EventLog(10_000, () => 0);
  for (let i = 0; i < 5000; i++) log.add('actor', `actor-${i}`, 'alive', { i });
  const last = log.last();
  t.equal(last.at(-1)?.name, 'actor-4999');
  t.ok(JSON.stringify(last).length <= 10_000 + last.length + 2);
  t.ok(last.length > 50);
  t.equal(log.size + log.dropped, 5000);
  t.same(
    log.last(2).map(({ name }) => name),
    ['actor-4998', 'actor-4999'],
  );
  t.end();
});

t.test('lines that actors write are kept, by name, in files of bounded size', async (t) => {
  const probe = spawn(Probe, { name: 'a/talker:1', maxRestarts: 1, restartBackoffMs: 0 });
  probe.complain('first words', 3).catch(() => {});
  await written('first words');
  await lookUntil(
    async () => listActors().find(({ name }) => name === 'a/talker:1')!,
    ({ incarnation, state }) => incarnation === 2 && state === 'alive',
  );
  lines.length = 0;
  await probe.spin(1);
  await written('spinning');
  const { lines: kept, total } = await logs('a/talker:1');
  t.match(kept, [/^\d{4}-.*Z stderr first words$/, /^\d{4}-.*Z stderr spinning$/]);
  t.equal(total, 2);
  t.equal((await logs(probe, { tail: 1 })).lines.length, 1);
  await t.rejects(logs('nobody'), { code: 'SINKFLEX_NO_LOG', message: /there are logs of .*a\/talker:1/ });
  await kill(probe);

  const folder = t.testdir();
  const log = new LogFolder(folder, 20_000, () => 0);
  for (let i = 0; i < 4000; i++) {
    log.write({ name: '../../escape', pid: 7, stream: 'stdout', line: `line ${i}` });
    if (i % 100 === 99) log.flush();
  }
  const [file] = listLogs(log.folder);
  t.ok(file!.bytes <= 20_000 + 5000, `two halves and a batch: ${file!.bytes}`);
  t.ok(file!.lostBytes > 100_000);
  const all = new LogReader(log.folder, '../../escape').read();
  t.match(all.at(-1), /line 3999$/);
  t.match(all[0], /Z stdout line \d+$/);
  t.same(readdirSync(folder), ['logs'], 'a name is no path');
  t.equal(statSync(file!.path, { throwIfNoEntry: false })?.mode ?? 0o100600, 0o100600);
  log.close();
});

t.test('delays of the event loop fall into their buckets', (t) => {
  const lag = new LoopLag();
  lag.stop();
  for (let i = 0; i < 98; i++) lag.add(0.5);
  lag.add(30);
  lag.add(20_000);
  const counts = lag.counts();
  t.same([counts.count, counts.maxMs], [100, 20_000]);
  t.equal(
    counts.buckets.reduce((a, b) => a + b),
    100,
  );
  t.same(
    [0.5, 0.99, 1].map((share) => lagQuantile(counts, share)),
    [1, 50, 20_000],
  );
  t.end();
});

t.test('counters never go back, whoever ends', async (t) => {
  const value = async (): Promise<number> =>
    Number(/^sinkflex_calls_started_total\{kind="Counter",method="get"\} (\d+)$/m.exec(await metrics())?.[1] ?? 0);
  const before = await value();
  const actors = [spawn(Counter), spawn(Counter, { isolation: 'thread' }), spawn(Counter, { isolation: 'shared' })];
  for (const actor of actors) for (let i = 0; i < 4; i++) await actor.get();
  t.equal((await value()) - before, 12);
  await Promise.all(actors.map((actor) => kill(actor)));
  t.equal((await value()) - before, 12);
  const text = await metrics();
  for (const name of ['event_loop_lag_seconds_bucket', 'mailboxes_left_out', 'process_resident_bytes', 'actors'])
    t.match(text, new RegExp(`^sinkflex_${name}[{ ]`, 'm'));
  t.equal(new Set(text.match(/^# TYPE \S+/gm)).size, text.match(/^# TYPE \S+/gm)!.length, 'each metric once');
  for (const line of text.trim().split('\n')) t.match(line, /^(#|$|sinkflex_[a-z_]+(\{[^}]*\})? [-+.\deInfNa]+$)/);
});
