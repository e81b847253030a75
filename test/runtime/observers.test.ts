// The doors of a run to those who look at it from outside: the metrics listener and the observers' socket.
import { chmodSync, existsSync, mkdtempSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { createConnection } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import {
  chooseRun,
  findRuns,
  init,
  joinHead,
  kill,
  listEvents,
  listTasks,
  listWorkers,
  logs,
  metricsPort,
  RunObserver,
  runFolder,
  shutdown,
  spawn,
  startHead,
  status,
} from '../../runtime/index.ts';
import { LogReader } from '../../runtime/observe/log-reader.ts';
import { LogFolder } from '../../runtime/observe/logs.ts';
import { Channel, connect } from '../../runtime/wire/index.ts';
import { lookUntil } from '../until.ts';
import { Probe } from './fixtures/actors.ts';

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

async function written(word: string): Promise<void> {
  while (!lines.some((line) => line.includes(word))) await new Promise<void>((resolve) => (onLine = resolve));
}

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
  const raw = async (message: unknown): Promise<unknown> => {
    const transport = await connect(folder, token, 1, 'observe');
    return new Promise((resolve) => {
      const channel = new Channel(0, transport, { onMessage: (_, answer) => resolve(answer), onClose: () => resolve('cut off') });
      channel.open();
      channel.send(message as unknown[]);
    });
  };
  t.equal(await raw(['ask', 1, 'status']), 'cut off', 'of no known kind');
  t.equal(await raw([0, 'one', 'status']), 'cut off', 'without a number');
  t.match(JSON.stringify(await raw([0, 1, 'constructor', {}])), /SINKFLEX_BAD_OPTION/, 'an unknown question: answered with an error');
  for (const options of [{ limit: 'all' }, { where: { state: 3 } }, { limit: -1 }, { other: 1 }, [], 'x'])
    t.match(JSON.stringify(await raw([0, 1, 'actors', options])), /SINKFLEX_PROTOCOL/);
  await t.rejects(good.ask('__proto__' as never), { code: 'SINKFLEX_BAD_OPTION' });
  t.match(await good.ask('status'), { pid: process.pid, folder });
  good.close();

  writeFileSync(join(t.testdir({ not: {} }), 'not', 'observe.json'), '{}');
  t.throws(() => chooseRun(join(t.testdirName, 'not')), { code: 'SINKFLEX_NO_RUN' });
  t.throws(() => chooseRun('1'), { code: 'SINKFLEX_NO_RUN', message: /did you mean --run/ });
  t.throws(() => chooseRun(undefined, () => [run, run]), { code: 'SINKFLEX_NO_RUN', message: /2 runs of yours/ });
  t.throws(() => chooseRun(undefined, () => []), { code: 'SINKFLEX_NO_RUN', message: /no run of yours is alive/ });
});

t.test('a follower gets every line once, in portions that it asks for', async (t) => {
  const probe = spawn(Probe, { name: 'chatter' });
  await probe.spin(0);
  await written('spinning');
  const observer = await RunObserver.attach(chooseRun(runFolder()));
  const { tail, listen } = await observer.follow('chatter', 10);
  t.match(tail, { total: 1, lines: [/spinning/], lostBytes: 0 });
  for (let i = 0; i < 30; i++) await probe.spin(0);
  const got: string[] = [];
  let missing = 0;
  await new Promise<void>((resolve) => {
    listen((more, gaps) => {
      got.push(...more);
      missing += gaps;
      if (got.length >= 30) resolve();
    });
  });
  t.same([got.length, missing], [30, 0]);
  observer.close();
  await observer.ended;
  await kill(probe);
});

t.test('a log is read on where it was left, while its file moves', (t) => {
  const folder = t.testdir();
  const log = new LogFolder(folder, 2000, () => 0);
  const reader = new LogReader(log.folder, 'a');
  const got: string[] = [];
  let next = 0;
  const write = (count: number): void => {
    for (let i = 0; i < count; i++) {
      log.write({ name: 'a', pid: 1, stream: 'stdout', line: String(next++) });
      log.flush();
    }
  };
  for (let round = 0; round < 100; round++) {
    write(round % 25);
    got.push(...reader.read(10));
  }
  got.push(...reader.read());
  const numbers = got.map((line) => Number(line.split(' ').at(-1)));
  t.ok(next > 1000 && numbers.every((n, i) => i === 0 || n > numbers[i - 1]!), 'in order, none twice');
  t.ok(numbers.length === next || reader.gaps > 0, 'what is missing is told');
  write(3);
  t.equal(reader.read().length, 3);
  const before = reader.gaps;
  write(300);
  reader.read();
  t.equal(reader.gaps, before + 1, 'moved away twice before it was read');
  log.close();
  t.end();
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
  await shutdown();
});

t.test('the metrics listener takes a token that stays the same', async (t) => {
  const file = join(t.testdir({ token: `${'s3cret-'.repeat(5)}\n`, short: 'abc\n' }), 'token');
  const short = file.replace(/token$/, 'short');
  chmodSync(file, 0o644);
  chmodSync(short, 0o600);
  const start = (metricsTokenFile: string) => init({ metricsPort: 0, metricsTokenFile, onOutput: () => {} });
  await t.rejects(start(file), { code: 'SINKFLEX_BAD_OPTION', message: /chmod 600/ });
  await t.rejects(start(short), { code: 'SINKFLEX_BAD_OPTION', message: /at least 32 characters/ });
  chmodSync(file, 0o600);
  await start(file);
  const observers = readFileSync(join(runFolder(), 'observe.token'), 'utf8').trim();
  t.match(await http('GET', '/metrics', { authorization: `Bearer ${'s3cret-'.repeat(5)}` }), { status: 200, body: /sinkflex_actors/ });
  t.match(await http('GET', '/metrics', { authorization: `Bearer ${observers}` }), { status: 401 });
});

t.test('a cluster is seen through its head, from an attached driver as from outside', async (t) => {
  await shutdown();
  const folder = mkdtempSync(join(tmpdir(), 'sf-cluster-'));
  const head = await startHead({ folder });
  const agent = await joinHead({ address: folder, node: 'n1', cpus: 2, onOutput: () => {} });
  t.teardown(async () => {
    await shutdown();
    await agent.drain({ timeoutMs: 100 });
    await head.close();
  });
  await init({ address: folder });
  const probe = spawn(Probe, { name: 'far', maxConcurrency: 2, cpus: 1 });
  const light = spawn(Probe, { name: 'light', isolation: 'shared' });
  await Promise.all([probe.spin(0), light.label()]);
  const blocked = probe.block();
  const seen = await lookUntil(
    () => listTasks(),
    ({ items }) => items.some(({ state }) => state === 'running'),
  );
  t.match(seen, { items: [{ actor: 'far', method: 'block', state: 'running', caller: /^driver-\d+$/ }], total: 1, silent: [] });
  const { items } = await listWorkers();
  t.same(items.map(({ isolation, state }) => `${isolation} ${state}`).sort(), ['driver ok', 'process ok', 'shared ok']);
  t.match(await status(), { folder, actors: { alive: 2 }, nodes: [{ node: 'n1', total: { cpus: 2 }, free: { cpus: 1 } }] });
  t.match(
    await lookUntil(
      () => logs('far'),
      ({ total }) => total > 0,
    ),
    { lines: [/stderr spinning$/] },
  );
  t.match((await listEvents({ where: { what: 'node' } })).items, [{ name: 'n1', change: 'up' }]);
  const observer = await RunObserver.attach(chooseRun(folder));
  const sample = await lookUntil(
    () => observer.ask('stack', { name: 'far' }),
    ({ state }) => state !== 'silent', // a worker can tell once it has lived for a second
  );
  t.match(sample, { state: 'idle', worker: 'far' });
  await t.rejects(observer.ask('stack', { name: 'nobody' }), { code: 'SINKFLEX_UNKNOWN_ACTOR' });
  t.match(await observer.ask('metrics'), /sinkflex_calls_running\{kind="Probe"\} 1/);
  observer.close();
  await probe.open();
  await blocked;
});
