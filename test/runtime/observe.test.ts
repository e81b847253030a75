// Seeing a run from inside: lists, events, logs, metrics, and what happens when a worker does not answer or a stranger asks.
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { createConnection } from 'node:net';
import { join } from 'node:path';
import t from 'tap';
import {
  chooseRun,
  findRuns,
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
  metricsPort,
  put,
  RunObserver,
  ready,
  runFolder,
  shutdown,
  spawn,
  status,
  summary,
} from '../../runtime/index.ts';
import { EventLog, LogFolder } from '../../runtime/observe/index.ts';
import { LoopLag, lagQuantile } from '../../runtime/observe/loop-lag.ts';
import { Channel, connect } from '../../runtime/wire/index.ts';
import { Counter, Probe } from './fixtures/actors.ts';

delete process.env.NODE_OPTIONS;
const lines: string[] = [];
let onLine: () => void = () => {};
t.before(() =>
  init({
    metricsPort: 0,
    onOutput: ({ line }) => {
      lines.push(line);
      onLine();
    },
  }),
);
t.teardown(() => shutdown());

/** Asks until the answer is as wanted; the last answer if time is up. */
async function until<T>(look: () => Promise<T>, wanted: (seen: T) => boolean, withinMs = 5000): Promise<T> {
  const end = Date.now() + withinMs;
  for (;;) {
    const seen = await look();
    if (wanted(seen) || Date.now() > end) return seen;
    await new Promise((resolve) => setImmediate(resolve));
  }
}

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
  const seen = await until(
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
      await until(
        () => listTasks(),
        ({ total }) => total === 0,
      )
    ).total,
    0,
  );
  await Promise.all([kill(other), kill(source)]);
});

t.test('values that others hold, with their sizes and holders', async (t) => {
  const probe = spawn(Probe, { name: 'holder', maxConcurrency: 3 });
  await ready(probe);
  const ref = put(new Uint8Array(1000));
  const pending = probe.block();
  const held = probe.readNested({ ref: pending as never }); // waits for it: the driver's own ref goes back and forth
  const { items } = await until(
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
  const theirsLeft = await until(
    () => listObjects({ where: { owner: 'holder' } }),
    ({ total }) => total === 0,
  );
  t.equal(theirsLeft.total, 0, 'given back');
  await kill(probe);
  const left = await until(
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
  t.ok(took < 2000, `two rounds of 200 ms, and it took ${took}`);
  t.match(
    silent.map(({ name, why }) => [name, why]),
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
  await until(
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
  await until(
    async () => listActors().find(({ name }) => name === 'a/talker:1')!,
    ({ incarnation, state }) => incarnation === 2 && state === 'alive',
  );
  lines.length = 0;
  await probe.spin(1);
  await written('spinning');
  const { lines: kept, total } = await logs('a/talker:1');
  t.match(kept, [/^\d{4}-.*Z stderr first words$/, /^\d{4}-.*Z stderr spinning$/]);
  t.equal(total, 2);
  t.equal((await logs('a/talker:1', { tail: 1 })).lines.length, 1);
  await t.rejects(logs('nobody'), { code: 'SINKFLEX_NO_LOG', message: /there are logs of .*a\/talker:1/ });
  await kill(probe);

  const folder = t.testdir();
  const log = new LogFolder(folder, 20_000, () => 0);
  for (let i = 0; i < 4000; i++) {
    log.write({ name: '../../escape', pid: 7, stream: 'stdout', line: `line ${i}` });
    if (i % 100 === 99) log.flush();
  }
  const [file] = log.files();
  t.ok(file!.bytes <= 20_000 + 5000, `two halves and a batch: ${file!.bytes}`);
  t.ok(file!.lostBytes > 100_000);
  const all = log.tail('../../escape');
  t.match(all.lines.at(-1), /line 3999$/);
  t.equal(all.lostBytes, file!.lostBytes);
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

interface Reply {
  status: number | undefined;
  body: string;
}
function http(method: string, path: string, headers: Record<string, string> = {}): Promise<Reply> {
  return new Promise((resolve, reject) => {
    request({ port: metricsPort(), host: '127.0.0.1', method, path, headers, agent: false }, (response) => {
      let body = '';
      response.setEncoding('utf8');
      response.on('data', (chunk) => (body += chunk));
      response.on('end', () => resolve({ status: response.statusCode, body }));
    })
      .on('error', reject)
      .end();
  });
}

t.test('the metrics listener: closed by default, to strangers and to browsers', async (t) => {
  const token = readFileSync(join(runFolder(), 'observe.token'), 'utf8').trim();
  const known = { authorization: `Bearer ${token}` };
  const methods = ['GET', 'POST', 'PUT', 'DELETE', 'OPTIONS', 'PATCH'];
  const paths = ['/', '/metrics', '/livez', '/readyz', '/../metrics', '/anything?token=x'];
  for (const method of methods) {
    for (const path of paths) {
      const open = method === 'GET' && (path === '/livez' || path === '/readyz');
      t.same(await http(method, path), { status: open ? 200 : 401, body: '' }, `${method} ${path} without a token`);
      const reply = await http(method, path, known);
      const wanted = open || (method === 'GET' && path === '/metrics') ? 200 : method === 'GET' ? 404 : 405;
      t.equal(reply.status, wanted, `${method} ${path} with it`);
      const foreign: Record<string, string>[] = [{ origin: 'http://localhost' }, { host: 'evil.example' }, { host: '127.0.0.1' }];
      for (const headers of foreign)
        t.same(
          await http(method, path, { ...known, ...headers }),
          { status: 403, body: '' },
          `${method} ${path} ${JSON.stringify(headers)}`,
        );
    }
  }
  t.match(await http('GET', '/metrics', known), { status: 200, body: /^sinkflex_event_loop_lag/m });
  for (const wrong of [`Bearer ${token}0`, `Bearer ${token.slice(1)}`, `Basic ${token}`, token, 'Bearer '])
    t.equal((await http('GET', '/metrics', { authorization: wrong })).status, 401);
});

t.test('the observers’ socket: who does not know the token is refused, who sends nonsense is cut off, the others are served', async (t) => {
  const folder = runFolder();
  t.equal(statSync(join(folder, 'observe.token')).mode & 0o777, 0o600);
  t.equal(statSync(folder).mode & 0o777, 0o700);
  await t.rejects(connect(folder, Buffer.alloc(32, 7), 1, 'observe'), { code: 'SINKFLEX_AUTHENTICATION_FAILED' });
  const token = Buffer.from(readFileSync(join(folder, 'observe.token'), 'utf8').trim(), 'hex');
  await t.rejects(connect(folder, token, 1, 0), { code: 'SINKFLEX_AUTHENTICATION_FAILED' }, 'it opens no worker’s door');

  const closes = (bytes: Buffer): Promise<void> =>
    new Promise((resolve) => {
      const socket = createConnection(join(folder, 'observe.sock'), () => socket.write(bytes));
      socket.on('error', () => {});
      socket.on('close', () => resolve());
      socket.resume();
    });
  await Promise.all([closes(Buffer.from('GET / HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(4))), closes(Buffer.alloc(4096, 0xff))]);

  const run = findRuns().find(({ pid }) => pid === process.pid)!;
  t.match(run, { folder, pid: process.pid });
  const good = await RunObserver.attach(run);
  const raw = async (message: unknown): Promise<boolean> => {
    const transport = await connect(folder, token, 1, 'observe');
    return new Promise((resolve) => {
      const channel = new Channel(0, transport, { onMessage: () => resolve(false), onClose: () => resolve(true) });
      channel.open();
      channel.send(message as unknown[]);
    });
  };
  t.equal(await raw(['ask', 1, 'status']), true, 'of no known kind: cut off');
  t.equal(await raw([0, 'one', 'status']), true, 'without a number: cut off');
  t.equal(await raw([0, 1, 'constructor', {}]), false, 'an unknown question: answered with an error');
  for (const options of [{ limit: 'all' }, { where: { state: 3 } }, { limit: -1 }, { other: 1 }, [], 'x'])
    await t.rejects(good.ask('actors', options as never), { code: 'SINKFLEX_PROTOCOL' });
  await t.rejects(good.ask('__proto__' as never), { code: 'SINKFLEX_BAD_OPTION' });
  t.match(await good.ask('status'), { pid: process.pid, folder });
  good.close();

  writeFileSync(join(t.testdir({ not: {} }), 'not', 'observe.json'), '{}');
  t.throws(() => chooseRun(join(t.testdirName, 'not')), { code: 'SINKFLEX_NO_RUN' });
  t.throws(() => chooseRun('1'), { code: 'SINKFLEX_NO_RUN', message: /did you mean --run/ });
  t.throws(() => chooseRun(undefined, () => [run, run]), { code: 'SINKFLEX_NO_RUN', message: /2 runs of yours/ });
  t.throws(() => chooseRun(undefined, () => []), { code: 'SINKFLEX_NO_RUN', message: /no run of yours is alive/ });
});

t.test('a follower that is slow loses lines, is told how many, and holds nobody up', async (t) => {
  const probe = spawn(Probe, { name: 'chatter' });
  await probe.spin(1);
  await written('spinning');
  const observer = await RunObserver.attach(chooseRun(runFolder()));
  const { tail, listen } = await observer.follow('chatter', 10);
  t.match(tail, { total: 1, lines: [/spinning/] });
  lines.length = 0;
  for (let i = 0; i < 30; i++) await probe.spin(0);
  const got: string[] = [];
  let lost = 0;
  await new Promise<void>((resolve) => {
    listen((more, left) => {
      got.push(...more);
      lost += left;
      if (got.length + lost >= 30) resolve();
    });
  });
  t.equal(got.length, 30);
  t.equal(lost, 0);
  observer.close();
  await observer.ended;
  await kill(probe);
});

t.test('nothing is left of it after shutdown', async (t) => {
  const folder = runFolder();
  const port = metricsPort()!;
  const observer = await RunObserver.attach(chooseRun(folder));
  await shutdown();
  await observer.ended;
  await t.rejects(observer.ask('status'), { code: 'SINKFLEX_NO_ANSWER' });
  t.notOk(existsSync(folder));
  t.same(
    findRuns().filter(({ pid }) => pid === process.pid),
    [],
  );
  await t.rejects(
    new Promise((_, reject) => {
      createConnection(port, '127.0.0.1').on('error', reject);
    }),
    { code: 'ECONNREFUSED' },
  );
  await t.rejects(status(), { code: 'SINKFLEX_NOT_INITIALISED' });
  await init({ onOutput: () => {} });
  t.equal(metricsPort(), undefined);
  t.match(await status(), { actors: {} });
});
