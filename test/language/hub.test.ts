// Models by name, against a small hub on this machine that redirects, drops connections, lies and goes away.
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, lstatSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { downloadModel, type HubOptions, type HubProgress, isHubName, ServedModel } from '../../actors/index.ts';
import { writeByteModel } from '../serving/byte-model.ts';

const folder = mkdtempSync(join(tmpdir(), 'hub-'));
t.teardown(() => rmSync(folder, { recursive: true, force: true }));
const source = join(folder, 'source');
mkdirSync(source);
writeByteModel(source);
const files = new Map(readdirSync(source).map((name) => [name, readFileSync(join(source, name))]));
files.set('README.md', Buffer.from('not wanted'));
const COMMIT = 'a'.repeat(40);
const NAME = 'some-org/Byte.Model';

/** Large files are known by SHA-256 and lie on another origin, as at the hub; small ones by git's SHA-1. */
const isLarge = (file: string): boolean => file.endsWith('.safetensors');
function etagOf(file: string): string {
  const bytes = files.get(file)!;
  return isLarge(file)
    ? createHash('sha256').update(bytes).digest('hex')
    : createHash('sha1').update(`blob ${bytes.length}\0`).update(bytes).digest('hex');
}

interface Behaviour {
  /** Bytes after which a connection is cut. */
  cutAfter?: number;
  corrupt?: string;
  status?: number;
  /** Ranges are ignored. */
  whole?: boolean;
  token?: string;
  /** Connections that say nothing at all. */
  stall?: boolean;
}
let behaviour: Behaviour = {};
const log: { method: string; url: string; range?: string; authorization?: string; storage: boolean }[] = [];

function answer(storage: boolean, request: IncomingMessage, response: ServerResponse): void {
  const { method = '', url = '', headers } = request;
  log.push({
    method,
    url,
    storage,
    ...(headers.range ? { range: headers.range } : {}),
    ...(headers.authorization ? { authorization: headers.authorization } : {}),
  });
  if (behaviour.stall) return;
  if (behaviour.status !== undefined) return void response.writeHead(behaviour.status).end('no');
  if (!storage && behaviour.token !== undefined && headers.authorization !== `Bearer ${behaviour.token}`)
    return void response.writeHead(401).end();
  if (url === `/api/models/${NAME}/revision/main`) {
    response.setHeader('content-type', 'application/json');
    return void response.end(JSON.stringify({ sha: COMMIT, siblings: [...files.keys()].map((rfilename) => ({ rfilename })) }));
  }
  const file = url.split('/').at(-1)!;
  const bytes = files.get(file);
  if (bytes === undefined || (!storage && url !== `/${NAME}/resolve/${COMMIT}/${file}`)) return void response.writeHead(404).end();
  response.setHeader('x-repo-commit', COMMIT);
  if (!storage && isLarge(file)) {
    response.setHeader('x-linked-etag', `"${etagOf(file)}"`);
    response.setHeader('x-linked-size', bytes.length);
    return void response.writeHead(302, { location: `http://127.0.0.1:${(other.address() as AddressInfo).port}/${file}` }).end();
  }
  const from = behaviour.whole ? 0 : Number(/^bytes=(\d+)-$/.exec(headers.range ?? '')?.[1] ?? 0);
  const body = Buffer.from(bytes.subarray(from));
  if (behaviour.corrupt === file) body[body.length >> 1]! ^= 1;
  response.writeHead(from > 0 ? 206 : 200, {
    etag: `W/"${etagOf(file)}"`,
    'content-length': body.length,
    ...(from > 0 ? { 'content-range': `bytes ${from}-${bytes.length - 1}/${bytes.length}` } : {}),
  });
  if (method === 'HEAD') return void response.end();
  if (behaviour.cutAfter === undefined || body.length <= behaviour.cutAfter) return void response.end(body);
  // Cut once the caller has had time to take what was sent: the end of a connection overtakes what lies in buffers.
  response.write(body.subarray(0, behaviour.cutAfter), () => setTimeout(() => response.destroy(), 20));
}

async function listen(storage: boolean): Promise<Server> {
  const server = createServer((request, response) => answer(storage, request, response));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return server;
}
const hub = await listen(false);
const other = await listen(true);
t.teardown(() => {
  for (const server of [hub, other]) {
    server.closeAllConnections();
    server.close();
  }
});
const endpoint = `http://127.0.0.1:${(hub.address() as AddressInfo).port}`;

let homes = 0;
/** A caller with a cache of its own. */
function caller(env: NodeJS.ProcessEnv = {}): HubOptions & { cache: string; pauses: number[] } {
  const home = join(folder, `home-${homes++}`);
  const pauses: number[] = [];
  return {
    env: { HF_HOME: home, HF_ENDPOINT: `${endpoint}/`, ...env },
    cache: join(home, 'hub', 'models--some-org--Byte.Model'),
    pauses,
    pause: async (attempt) => void pauses.push(attempt),
  };
}

t.beforeEach(() => {
  behaviour = {};
  log.length = 0;
});

t.test('a name is told from a path', async (t) => {
  mkdirSync(join(folder, 'org', 'name'), { recursive: true });
  t.same(
    ['Qwen/Qwen2.5-0.5B', 'org/name@v1', './org/name', 'org', '/org/name', 'a/b/c', 'a/../b', '../x', join(folder, 'org/name')].map(
      isHubName,
    ),
    [true, true, false, false, false, false, false, false, false],
  );
  for (const wrong of ['org', '../etc', 'a/b@../x', 'a/b@'])
    await t.rejects(downloadModel(wrong, caller()), { code: 'SINKFLEX_HUB_MISSING' });
});

t.test('a download lands in the cache as Hugging Face lays it out, and is not repeated', async (t) => {
  behaviour.token = 'secret';
  const c = caller({ HF_TOKEN: 'secret' });
  const heard: HubProgress[] = [];
  const path = await downloadModel(NAME, { ...c, onProgress: (p) => heard.push(p) });
  t.equal(path, join(c.cache, 'snapshots', COMMIT));
  t.equal(readFileSync(join(c.cache, 'refs', 'main'), 'utf8'), COMMIT);
  for (const name of files.keys()) {
    if (name === 'README.md') continue;
    t.ok(lstatSync(join(path, name)).isSymbolicLink());
    t.ok(readFileSync(join(c.cache, 'blobs', etagOf(name))).equals(files.get(name)!), name);
  }
  t.notOk(existsSync(join(path, 'README.md')));
  t.match(heard.at(-1), { file: 'model.safetensors', bytes: files.get('model.safetensors')!.length });
  t.equal(heard.at(-1)!.totalBytes, heard.at(-1)!.totalSize);
  t.ok(
    log.every(({ storage, authorization }) => (authorization === undefined) === storage),
    'the token stays with the hub',
  );
  const model = new ServedModel(path, { maxModelLength: 32 });
  t.equal(model.tokenizer.decode(model.tokenizer.encode('hi')), 'hi');
  await model.close();

  log.length = 0;
  t.equal(await downloadModel(NAME, c), path);
  t.equal(log.length, 1, 'one question: is it still the newest');
  log.length = 0;
  t.equal(await downloadModel(NAME, { ...c, env: { ...c.env, HF_HUB_OFFLINE: '1' } }), path);
  t.equal(await downloadModel(`${NAME}@${COMMIT}`, c), path, 'a commit never changes');
  t.equal(log.length, 0);
  const warnings: string[] = [];
  behaviour.status = 503;
  t.equal(await downloadModel(NAME, { ...c, onWarning: (w) => warnings.push(w) }), path);
  t.match(warnings, [/503.*taken from the cache/]);
  await t.rejects(downloadModel(NAME, caller({ HF_HUB_OFFLINE: '1' })), { code: 'SINKFLEX_HUB_UNREACHABLE', message: /HF_HUB_OFFLINE/ });
});

t.test('dropped connections go on where they were', async (t) => {
  const size = files.get('model.safetensors')!.length;
  behaviour.cutAfter = Math.ceil(size / 5);
  const c = { ...caller(), retries: 50 };
  const path = await downloadModel(NAME, c);
  t.ok(readFileSync(join(path, 'model.safetensors')).equals(files.get('model.safetensors')!));
  const ranges = log.filter(({ storage, method }) => storage && method === 'GET').map(({ range }) => range);
  t.ok(ranges.length >= 5 && ranges[0] === undefined && ranges.filter((range) => range !== undefined).length >= 4, ranges.join());

  // Stopped in the middle, by this process or its death, it goes on the next time.
  const again = caller();
  const stop = new AbortController();
  const wanted = {
    ...again,
    signal: stop.signal,
    onProgress: ({ file, bytes }: HubProgress) => file === 'model.safetensors' && bytes > 0 && stop.abort(),
  };
  await t.rejects(downloadModel(NAME, wanted), { code: 'SINKFLEX_ABORTED' });
  const partial = join(again.cache, 'blobs', `${etagOf('model.safetensors')}.incomplete`);
  t.ok(existsSync(partial));
  writeFileSync(`${partial.replace('.incomplete', '')}.lock`, '999999999'); // of a process that is gone
  log.length = 0;
  behaviour = {};
  await downloadModel(NAME, again);
  t.match(
    log.filter(({ storage }) => storage).map(({ range }) => range),
    [/^bytes=\d+-$/],
  );
  t.notOk(readdirSync(join(again.cache, 'blobs')).some((name) => /incomplete|lock/.test(name)));
});

t.test('a server without ranges sends the whole again', async (t) => {
  const c = caller();
  const blobs = join(c.cache, 'blobs');
  mkdirSync(blobs, { recursive: true });
  writeFileSync(join(blobs, `${etagOf('model.safetensors')}.incomplete`), 'something else entirely');
  behaviour.whole = true;
  const path = await downloadModel(NAME, c);
  t.ok(readFileSync(join(path, 'model.safetensors')).equals(files.get('model.safetensors')!));
});

t.test('what comes damaged is not kept', async (t) => {
  for (const corrupt of ['model.safetensors', 'tokenizer.json']) {
    behaviour = { corrupt };
    const c = caller();
    await t.rejects(downloadModel(NAME, c), { code: 'SINKFLEX_HUB_CORRUPT', message: new RegExp(corrupt) });
    t.notOk(existsSync(join(c.cache, 'snapshots', COMMIT, corrupt)));
    t.notOk(existsSync(join(c.cache, 'blobs', `${etagOf(corrupt)}.incomplete`)));
    behaviour = {};
    await downloadModel(NAME, c);
  }
});

t.test('two at once download once', async (t) => {
  const c = caller();
  const paths = await Promise.all([downloadModel(NAME, c), downloadModel(NAME, c), downloadModel(NAME, c)]);
  t.equal(new Set(paths).size, 1);
  t.equal(log.filter(({ storage, method }) => storage && method === 'GET').length, 1);
});

t.test('refusals say what to do, at once; silence and failures are tried again, and end', async (t) => {
  for (const [status, code] of [
    [401, 'SINKFLEX_HUB_REFUSED'],
    [403, 'SINKFLEX_HUB_REFUSED'],
    [404, 'SINKFLEX_HUB_MISSING'],
  ] as const) {
    behaviour = { status };
    log.length = 0;
    const c = caller();
    await t.rejects(downloadModel(NAME, c), { code });
    t.equal(log.length, 1);
  }
  behaviour = { status: 500 };
  const failing = caller();
  await t.rejects(downloadModel(NAME, { ...failing, retries: 3 }), {
    code: 'SINKFLEX_HUB_UNREACHABLE',
    message: /HTTP 500 \(3 attempts\)/,
  });
  t.same(failing.pauses, [0, 1]);
  behaviour = { stall: true };
  await t.rejects(downloadModel(NAME, { ...caller(), retries: 1, stallMs: 50 }), {
    code: 'SINKFLEX_HUB_UNREACHABLE',
    message: /nothing came/,
  });
  await t.rejects(downloadModel(NAME, { ...caller({ HF_ENDPOINT: 'http://127.0.0.1:1' }), retries: 1 }), {
    code: 'SINKFLEX_HUB_UNREACHABLE',
  });
});

t.test('an index that names files elsewhere is refused', async (t) => {
  files.set('model.safetensors.index.json', Buffer.from(JSON.stringify({ weight_map: { x: '../../escape.safetensors' } })));
  t.teardown(() => files.delete('model.safetensors.index.json'));
  await t.rejects(downloadModel(NAME, caller()), { code: 'SINKFLEX_HUB_CORRUPT', message: /escape/ });
});
