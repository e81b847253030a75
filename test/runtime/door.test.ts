// The door of a head for other hosts: nobody who does not prove the token gets anything but a close, whatever is sent, and whoever does and
// then speaks nonsense is cut off.
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { WebSocket } from 'ws';
import { checkMessage } from '../../runtime/head/check-message.ts';
import { startHead } from '../../runtime/head/index.ts';
import { Door, dialDoor, findToken, PipeTransport, parseClusterUrl, parseListen } from '../../runtime/links/index.ts';
import { Channel, HEAD } from '../../runtime/wire/index.ts';
import { specOf } from './head-world.ts';

const base = mkdtempSync(join(tmpdir(), 'sf-door-'));
t.teardown(() => rmSync(base, { recursive: true, force: true }));
const head = await startHead(join(base, 'cluster'), { listen: '127.0.0.1:0' });
t.teardown(() => head.close(1000));
const url = head.url!;
const { port } = new URL(url);
const token = findToken(join(head.folder, 'token'));
/** Lets any number of strangers try. */
const patient = { free: 1e9, firstWaitMs: 0, longestWaitMs: 0 };

function ask(method: string, path: string, headers: Record<string, string> = {}): Promise<{ status: number; body: string }> {
  return new Promise((resolve, reject) => {
    const asked = request({ host: '127.0.0.1', port, method, path, headers, agent: false }, (response) => {
      let body = '';
      response.on('data', (chunk) => (body += chunk));
      response.on('end', () => resolve({ status: response.statusCode!, body }));
    });
    asked.on('error', reject);
    asked.end();
  });
}

t.test('every route and method is closed, but for two without a body', async (t) => {
  const answers: Record<string, number> = {};
  for (const path of ['/', '/livez', '/readyz', '/metrics', '/head', '/link', '/api/jobs', '/livez/..', '/%6civez', '/LIVEZ'])
    for (const method of ['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS', 'TRACE']) {
      const { status, body } = await ask(method, path);
      if (body !== '') t.fail(`${method} ${path} has a body: ${body}`);
      if (status !== 401) answers[`${method} ${path}`] = status;
    }
  t.same(answers, { 'GET /livez': 200, 'HEAD /livez': 200, 'GET /readyz': 200, 'HEAD /readyz': 200 });
  t.equal((await ask('GET', '/livez', { host: `evil.example:${port}` })).status, 403, 'a name that is not its own: rebinding');
  t.equal((await ask('GET', '/livez', { host: `10.1.2.3:${port}` })).status, 403);
  t.equal((await ask('GET', '/livez', { host: `localhost:${port}` })).status, 200);
  t.equal((await ask('GET', '/livez', { origin: 'http://evil.example' })).status, 403, 'a page');
  t.equal((await ask('GET', '/livez', { origin: `http://127.0.0.1:${port}` })).status, 403, 'any page');
});

function upgrade(path: string, options: object = {}): Promise<number> {
  return new Promise((resolve) => {
    const socket = new WebSocket(`${url}${path}`, options);
    socket.on('unexpected-response', (_, response) => {
      resolve(response.statusCode!);
      socket.terminate();
    });
    socket.on('open', () => {
      resolve(101);
      socket.terminate();
    });
    socket.on('error', () => {});
  });
}

t.test('WebSockets of pages and of those who do not know the way', async (t) => {
  t.equal(await upgrade('/head', { origin: 'http://evil.example' }), 403);
  t.equal(await upgrade('/head', { headers: { host: 'evil.example' } }), 403);
  t.equal(await upgrade('/'), 404);
  t.equal(await upgrade('/link'), 404, 'a head has no workers');
  t.equal(await upgrade('/head'), 101);
});

/** What a stranger gets back before the end, and whether the end came. */
async function stranger(door: string, send: (socket: WebSocket) => void): Promise<Buffer> {
  const socket = new WebSocket(`${door}/head`, { perMessageDeflate: false });
  const got: Buffer[] = [];
  socket.on('message', (data: Buffer) => got.push(data));
  socket.on('error', () => {});
  await once(socket, 'open');
  const closed = once(socket, 'close');
  send(socket);
  await closed;
  return Buffer.concat(got);
}

t.test('a stranger gets nothing but a close', async (t) => {
  let entered = 0;
  const door = await Door.open({ listen: { host: '127.0.0.1', port: 0 }, token, failures: patient, rooms: { head: () => entered++ } });
  t.teardown(() => door.close());
  const good = Buffer.alloc(24);
  good.write('SFXA');
  // Only a well-formed greeting is answered, by the listener's half of the proof, and that is all there ever is.
  const answers = await Promise.all([
    stranger(door.url, (socket) => socket.send('text')),
    stranger(door.url, (socket) => socket.send(Buffer.alloc(25))),
    stranger(door.url, (socket) => socket.send(randomBytes(24))),
    stranger(door.url, (socket) => socket.send(Buffer.alloc(900_000))),
    stranger(door.url, (socket) => socket.send(Buffer.alloc(2_000_000))),
    stranger(door.url, (socket) => socket.send(good.subarray(0, 10), { fin: false })),
  ]);
  t.same(
    answers.map(({ length }) => length),
    [0, 0, 0, 0, 0, 0],
  );
  const reply = await stranger(door.url, (socket) => {
    socket.send(good);
    socket.send(randomBytes(32));
  });
  t.equal(reply.length, 48, 'nonce and proof, then the close');
  let bad = 0;
  const attempt = async (i: number): Promise<void> => {
    const first = i % 3 === 0 ? good : randomBytes(i % 40);
    const heard = await stranger(door.url, (socket) => {
      socket.send(first, { binary: i % 7 !== 0 });
      if (i % 2 === 0) socket.send(randomBytes(i));
      if (i % 5 === 0) (socket as unknown as { _socket: Socket })._socket.write(randomBytes(200));
    });
    if (heard.length > 48) bad++;
  };
  // Some say too little and run into the deadline: together.
  await Promise.all(Array.from({ length: 60 }, (_, i) => attempt(i)));
  for (let i = 0; i < 240; i++) if (i % 3 > 0 || i % 2 === 0) await attempt(i);
  t.equal(bad, 0);
  t.equal(entered, 0);
  // Not even HTTP.
  for (let i = 0; i < 200; i++) {
    const socket = connect(Number(new URL(door.url).port), '127.0.0.1');
    socket.on('error', () => {});
    socket.on('data', () => {});
    const closed = once(socket, 'close');
    socket.write(i % 2 === 0 ? randomBytes(100) : `GET /head HTTP/1.1\r\nHost: 127.0.0.1\r\n${'x'.repeat(i * 50)}: y\r\n\r\n`);
    if (i % 4 === 0) socket.end();
    await closed;
  }
  const pipe = await dialDoor(door.url, 'head', token, undefined);
  t.equal(entered, 1, 'who knows the token is let in after all that');
  pipe.destroy();
  await t.rejects(dialDoor(door.url, 'head', randomBytes(32), undefined), { code: 'SINKFLEX_AUTHENTICATION_FAILED' });
});

t.test('an address that fails again and again has to wait', async (t) => {
  const failures = { free: 2, firstWaitMs: 60_000, longestWaitMs: 60_000 };
  const door = await Door.open({ listen: { host: '127.0.0.1', port: 0 }, token, failures, rooms: { head: (pipe) => pipe.destroy() } });
  t.teardown(() => door.close());
  for (let i = 0; i < 3; i++)
    await t.rejects(dialDoor(door.url, 'head', randomBytes(32), undefined), { code: 'SINKFLEX_AUTHENTICATION_FAILED' });
  await t.rejects(dialDoor(door.url, 'head', token, undefined), /429/, 'even with the token');
});

/** A peer of the head that has proved itself. Resolves with how it ended. */
async function insider(messages: unknown[]): Promise<string> {
  const transport = new PipeTransport(await dialDoor(url, 'head', token, undefined));
  return new Promise((resolve) => {
    const timer = setTimeout(() => {
      resolve('stays');
      channel.close();
    }, 150);
    const channel = new Channel(HEAD, transport, {
      onMessage: () => {},
      onClose: () => {
        clearTimeout(timer);
        resolve('closed');
      },
    });
    channel.open();
    for (const message of messages) channel.send(message as unknown[]);
  });
}

t.test('whoever has proved itself and speaks nonsense is cut off, and the head goes on', async (t) => {
  const spec = specOf(7);
  const nonsense: unknown[] = [
    null,
    7,
    'join',
    [],
    {},
    { t: 'nothing' },
    { t: '__proto__' },
    { t: 'constructor' },
    { t: 'spawn' },
    { t: 'spawn', spec: null },
    { t: 'spawn', spec: { ...spec, request: { resources: { cpus: -1 }, labels: {}, strategy: 'hybrid' } } },
    { t: 'spawn', spec: { ...spec, request: { resources: { cpus: Number.NaN }, labels: {}, strategy: 'hybrid' } } },
    { t: 'spawn', spec: { ...spec, args: {} } },
    { t: 'spawn', spec: { ...spec, owner: 'me' } },
    { t: 'join', node: 7 },
    { t: 'ask', worker: 1, request: 1, ask: { q: 'hasOwnProperty' } },
    { t: 'ask', worker: 1, request: 1, ask: { q: 'lease', lease: 'l', request: {}, owner: 'x' } },
    { t: 'kill', actor: 1 },
    { t: 'died', actor: 1, incarnation: 1, end: {} },
  ];
  for (const message of nonsense) {
    t.throws(() => checkMessage(message), { code: 'SINKFLEX_PROTOCOL' });
    if (typeof message !== 'object' || message === null) continue;
    t.equal(await insider([[message]]), 'closed', JSON.stringify(message).slice(0, 60));
  }
  t.equal(await insider([[{ t: 'watch' }]]), 'stays');
  for (let i = 0; i < 100; i++) {
    const pipe = await dialDoor(url, 'head', token, undefined);
    const closed = new Promise<void>((resolve) =>
      pipe.open(
        () => {},
        () => resolve(),
      ),
    );
    // Bytes that are no frame.
    pipe.send(randomBytes(16 + i * 10));
    await closed;
  }
  t.equal((await ask('GET', '/readyz')).status, 200);
  t.same(head.head.list(), [], 'and nothing came of it');
});

t.test('addresses and tokens', (t) => {
  t.same(parseListen('127.0.0.1:7400'), { host: '127.0.0.1', port: 7400 });
  t.same(parseListen('[::1]:0'), { host: '::1', port: 0 });
  for (const bad of ['7400', ':7400', 'host', 'host:70000', 'a b:1', '::1:5', '[x]:1'])
    t.throws(() => parseListen(bad), { code: 'SINKFLEX_BAD_OPTION' });
  t.match(parseClusterUrl('wss://trainer.example:7400'), { host: 'trainer.example', port: 7400, secure: true });
  for (const bad of ['http://a', 'ws://user:secret@127.0.0.1:1', 'wss://a/?token=secret', 'wss://a/path', 'wss://', 'wss://a#x']) {
    try {
      parseClusterUrl(bad);
      t.fail(bad);
    } catch (error) {
      t.match(error, { code: 'SINKFLEX_BAD_OPTION' });
      t.notMatch((error as Error).message, /secret@|=secret/, 'what is secret is not repeated');
    }
  }
  t.throws(() => parseClusterUrl('ws://10.0.0.1:7400'), { code: 'SINKFLEX_TLS_REQUIRED' });
  t.rejects(Door.open({ listen: { host: '0.0.0.0', port: 0 }, token, rooms: {} }), { code: 'SINKFLEX_TLS_REQUIRED' });
  const file = join(base, 'token');
  const secret = 'ab'.repeat(32);
  writeFileSync(file, `${secret}\n`, { mode: 0o600 });
  t.same(findToken(file, {}), Buffer.from(secret, 'hex'));
  const environment: NodeJS.ProcessEnv = { SINKFLEX_TOKEN: secret };
  t.same(findToken(undefined, environment), Buffer.from(secret, 'hex'));
  t.notOk('SINKFLEX_TOKEN' in environment, 'children do not see it');
  t.same(findToken(undefined, { SINKFLEX_TOKEN_FILE: file }), Buffer.from(secret, 'hex'));
  t.throws(() => findToken(undefined, {}), /SINKFLEX_TOKEN_FILE/);
  t.throws(() => findToken(undefined, { SINKFLEX_TOKEN: 'short' }), { code: 'SINKFLEX_BAD_OPTION' });
  chmodSync(file, 0o644);
  t.throws(() => findToken(file, {}), /chmod 600/);
  t.equal(readFileSync(join(head.folder, 'token'), 'utf8').trim().length, 64);
  t.end();
});
