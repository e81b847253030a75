// A cluster of several hosts: agents that share no folder with the head or each other, joined over WebSockets, and a driver that is elsewhere.
import { type ChildProcess, fork } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import {
  init,
  kill,
  listActors,
  listNodes,
  put,
  SegmentReplica,
  SegmentSource,
  shutdown,
  spawn,
  spread,
  task,
} from '../../runtime/index.ts';
import { Peer, Reader, sumThere, Writer } from './fixtures/hosts.ts';

t.setTimeout(600_000);
delete process.env.NODE_OPTIONS;
const base = mkdtempSync(join(tmpdir(), 'sf-hosts-'));
const folder = join(base, 'cluster');
const tokenFile = join(folder, 'token');
const small = fileURLToPath(new URL('./fixtures/cluster-process.js', import.meta.url));
const started: ChildProcess[] = [];

async function run(...words: string[]): Promise<{ child: ChildProcess; said: Record<string, unknown> }> {
  const child = fork(small, words, { stdio: ['ignore', 'pipe', 'inherit', 'ipc'], execArgv: [] });
  started.push(child);
  let text = '';
  await new Promise<void>((resolve, reject) => {
    child.stdout!.on('data', (chunk) => {
      text += chunk;
      if (text.includes('\n')) resolve();
    });
    child.once('exit', (code) => reject(new Error(`${words.join(' ')} ended with ${code}`)));
  });
  return { child, said: JSON.parse(text) as Record<string, unknown> };
}

const view = (of: Float64Array): Buffer => Buffer.from(of.buffer, of.byteOffset, of.byteLength);
/** At once: t.same takes seconds for so many, in which the head hears nothing of this driver. */
const isSame = (a: Float64Array, b: Float64Array): boolean => view(a).equals(view(b));

/** Less than the lease of a host. */
const STAND_STILL_MS = 5000;

let url = '';
t.before(async () => {
  url = (await run('head', folder, '127.0.0.1:0')).said.url as string;
  await Promise.all(['a', 'b'].map((node) => run('agent', url, node, tokenFile)));
  await init({ address: url, tokenFile });
});
t.teardown(async () => {
  await shutdown();
  for (const child of started) child.kill('SIGKILL');
  rmSync(base, { recursive: true, force: true });
});

t.test('calls, refs and large values between three hosts', async (t) => {
  t.same((await listNodes()).map(({ node }) => node).sort(), ['a', 'b']);
  const a = spawn(Peer, { strategy: { node: 'a' } });
  const b = spawn(Peer, { strategy: { node: 'b' } });
  t.equal(await a.add(1, 2), 3);
  t.equal(await b.add(2, 2), 4);
  t.not(await a.folder(), await b.folder(), 'they share no folder');

  const large = new Float64Array(300_000).map((_, i) => i * 0.5);
  const sum = large.reduce((x, y) => x + y, 0);
  t.equal(await a.sum(large), sum, 'an argument through shared memory on either side');
  t.ok(isSame(await a.make(300_000), large), 'a result');
  const ref = await a.keep(300_000);
  t.equal(await b.sum(ref.ref), sum, "another host's value, straight from its owner");
  t.ok(isSame(await ref.ref, large));
  const own = put(large);
  t.same(await Promise.all([a.sum(own), b.sum(own), a.sum(own)]), [sum, sum, sum], 'one value for many');
  t.equal(await a.ask(b, 5, 6), 11, 'from actor to actor');
  own.release();
});

t.test('order holds, and many calls at once', async (t) => {
  const a = spawn(Peer, { strategy: { node: 'a' } });
  const answers = await Promise.all(
    Array.from({ length: 3000 }, (_, i) => a.count(i % 100 === 0 ? new Uint8Array(100_000) : new Uint8Array(3))),
  );
  t.same(
    answers,
    Array.from({ length: 3000 }, (_, i) => i),
  );
});

t.test('by way of the gateways: threads of tasks, with large values both ways', async (t) => {
  const a = spawn(Peer, { strategy: { node: 'a' } });
  t.same(await task(sumThere)(a, 300_000), { sum: 300_000, back: 300_000 });
  t.equal((await task(sumThere)(a, 10)).sum, 10);
});

t.test('workers of two hosts need no other process to speak with each other', async (t) => {
  const [, ...agents] = started;
  let answer: number | undefined;
  // A machine that is busy enough opens a channel the other way, so there are several attempts.
  for (let attempt = 0; attempt < 3 && answer === undefined; attempt++) {
    const a = spawn(Peer, { strategy: { node: 'a' } });
    const b = spawn(Peer, { strategy: { node: 'b' } });
    t.equal(await a.ask(b, 1, 2), 3);
    for (const agent of agents) agent.kill('SIGSTOP');
    const late = setTimeout(() => agents.map((agent) => agent.kill('SIGCONT')), STAND_STILL_MS);
    const began = performance.now();
    const sum = await a.ask(b, 5, 6);
    if (performance.now() - began < STAND_STILL_MS) answer = sum;
    clearTimeout(late);
    for (const agent of agents) agent.kill('SIGCONT');
    const busy = b.block(3500);
    t.equal(await a.ask(b, 7, 8), 15, 'a worker that is busy for long is not given up');
    await busy;
  }
  t.equal(answer, 11, 'while both agents stood still');
});

t.test('a segment is followed on another host, version by version, and no reader sees part of one', async (t) => {
  const slotBytes = 8 * 2 ** 20 + 4096;
  const on = (node: string) => ({ strategy: { node } }) as const;
  const writer = spawn(Writer, { args: [slotBytes], ...on('a') });
  await writer.publish(1);
  const source = spawn(SegmentSource, { args: [await writer.address()], maxConcurrency: 100, ...on('a') });
  const replica = spawn(SegmentReplica, { args: [{ source }], maxConcurrency: 100, ...on('b') });
  t.match(await replica.reached({ lineage: 0, version: 1 }, 10_000), { version: 1 });
  const reader = spawn(Reader, { args: [await replica.address()], ...on('b') });
  t.same(await reader.read(), { version: 1, first: 1, last: 1 });
  const watched = reader.watch(12, true);
  for (let version = 2; version <= 12; version++) {
    await writer.publish(version);
    if (version % 3 === 0) await replica.reached({ lineage: 0, version }, 10_000);
  }
  const { seen, torn } = await watched;
  t.equal(torn, 0);
  t.ok(seen.length >= 4 && seen.at(-1) === 12, `saw ${seen.join()}`);

  const before = await replica.status();
  await writer.publish(13, 4096);
  await replica.reached({ lineage: 0, version: 13 }, 10_000);
  const after = await replica.status();
  t.ok(after.bytes - before.bytes < 20_000, `what stays is not sent: ${after.bytes - before.bytes} bytes`);
  t.same(await reader.read().then(({ first, last }) => [first, last]), [13, 12]);

  const late = spawn(SegmentReplica, { args: [{ source }], maxConcurrency: 100, ...on('b') });
  t.match(await late.reached({ lineage: 0, version: 13 }, 10_000), { version: 13 }, 'one that comes late catches up');
  await t.rejects(late.reached({ lineage: 0, version: 14 }, 50).then(), { code: 'SINKFLEX_REPLICA_BEHIND' });
  await Promise.all([kill(replica), kill(late), kill(source), kill(reader), kill(writer)]);
});

t.test('a value is spread over the hosts in a chain, and is one of each of them then', async (t) => {
  const value = { name: 'table', rows: new Float64Array(700_000).map((_, i) => i * 0.5) };
  const sum = value.rows.reduce((x, y) => x + y, 0);
  const copies = await spread(value, ['b', 'a']);
  for (const node of ['a', 'b']) {
    const peer = spawn(Peer, { strategy: { node } });
    t.equal(await peer.sumOf(copies.on(node)), sum);
    await kill(peer);
  }
  t.same(
    listActors()
      .filter(({ kind, state }) => kind === 'SpreadNode' && state === 'alive')
      .map(({ node }) => node)
      .sort(),
    ['a', 'b'],
  );
  t.throws(() => copies.on('c'), { code: 'SINKFLEX_BAD_OPTION' });
  await copies.release();
  const small = await spread('a word', ['a']);
  t.equal(await small.on('a'), 'a word');
  await small.release();
  await t.rejects(spread(1, ['a', 'a']), { code: 'SINKFLEX_BAD_OPTION' });
  await t.rejects(spread(value, ['a', 'nowhere'], { timeoutMs: 500 }), { code: /SINKFLEX_/ });
  t.same(
    listActors().filter(({ kind, state }) => kind === 'SpreadNode' && state !== 'dead'),
    [],
    'nothing is left behind',
  );
});
