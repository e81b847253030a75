// Versioned segments in one process and between processes: pins, flips, deadlines, dead readers and dead writers.
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Worker } from 'node:worker_threads';
import t from 'tap';
import { isSinkflexError } from '../../kernels/errors.ts';
import { os } from '../../kernels/os.ts';
import { type SegmentAddress, VersionedSegment } from '../../kernels/segment.ts';
import { PATIENCE_MS } from '../until.ts';
import { fillOf, type Order, type Report } from './fixtures/segment-process.ts';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;
const fixture = new URL(`./fixtures/segment-process${import.meta.url.endsWith('.ts') ? '.ts' : '.js'}`, import.meta.url);
// Plain node: the test runner's loader would cost every child a second.
const { NODE_OPTIONS: _, ...env } = process.env;
const plain = { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] as ['ignore', 'inherit', 'inherit', 'ipc'], execArgv: [] as string[], env };
const children = new Set<ChildProcess>();
t.teardown(() => {
  for (const child of children) child.kill('SIGKILL');
});

function start(order: Order): ChildProcess {
  const child = fork(fixture, plain);
  child.setMaxListeners(0);
  children.add(child);
  child.on('exit', () => children.delete(child));
  child.send(order);
  return child;
}

async function report(child: ChildProcess): Promise<Report> {
  const [message] = (await Promise.race([once(child, 'message'), once(child, 'exit')])) as [Report | number | null];
  if (typeof message !== 'object' || message === null) throw new Error(`the process ended with ${message}`);
  return message;
}

async function end(child: ChildProcess): Promise<void> {
  const gone = once(child, 'exit');
  child.kill('SIGKILL');
  await gone;
}

async function publish(segment: VersionedSegment, lineage: number, version: number): Promise<number> {
  const writing = await segment.beginWrite({ timeoutMs: 5000 });
  new Uint32Array(writing.data.buffer).fill(fillOf({ lineage, version }));
  writing.publish({ lineage, version });
  return writing.slot;
}

const code = (value: string) => ({ code: value, name: 'SinkflexError' });

t.test('one process: pins hold their version, flips move the rest', async (t) => {
  const segment = VersionedSegment.create({ slotBytes: 4096, slots: 2, maxSlots: 4, readers: 4 });
  t.equal(segment.current(), undefined);
  t.throws(() => segment.pin(), code('SINKFLEX_STORE_EMPTY'));
  t.equal(isSinkflexError(await segment.waitForVersion(undefined, { timeoutMs: 10 }).catch((e: unknown) => e)), true);

  await publish(segment, 0, 0);
  const first = segment.pin();
  t.strictSame(first.version, { lineage: 0, version: 0, slot: 0 });
  const bytes = first.data;
  await publish(segment, 0, 1);
  const second = segment.pin();
  await publish(segment, 0, 2);
  t.equal(segment.slots, 3, 'a slot was added when both were in use');
  t.equal(new Uint32Array(bytes.buffer)[7], fillOf({ lineage: 0, version: 0 }), 'a pinned slot keeps its version');
  t.same(
    segment
      .pins()
      .map((p) => p.version)
      .sort(),
    [0, 1],
  );
  first.release();
  first.release();
  t.equal(bytes.length, 0, 'a released view is empty');
  t.throws(() => first.data, code('SINKFLEX_STORE_CLOSED'));
  second.release();
  t.same(segment.pins(), []);

  const writing = await segment.beginWrite();
  t.throws(() => writing.publish({ lineage: 0, version: 2 }), code('SINKFLEX_STORE_ORDER'));
  t.throws(() => writing.publish({ lineage: 0, version: 1.5 }), code('SINKFLEX_BAD_ARGUMENT'));
  writing.publish({ lineage: 1, version: 1 });
  t.throws(() => writing.publish({ lineage: 1, version: 2 }), code('SINKFLEX_STORE_CLOSED'));
  t.match(segment.current(), { lineage: 1, version: 1 }, 'a restore goes back in versions with a new lineage');
  t.match(await segment.waitForVersion({ lineage: 0, version: 2 }), { lineage: 1, version: 1 }, 'and ends a wait for a later version');

  const later = segment.waitForVersion(1);
  await publish(segment, 1, 2);
  t.match(await later, { lineage: 1, version: 2 });
  await t.rejects(segment.waitForVersion(2, { timeoutMs: 20 }), code('SINKFLEX_STORE_TIMEOUT'));

  const pins = [segment.pin(), segment.pin(), segment.pin(), segment.pin()];
  t.throws(() => segment.pin(), code('SINKFLEX_STORE_READERS'));
  for (const pin of pins) pin.release();
  const waits = segment.waitForVersion(2);
  segment.close();
  await t.rejects(waits, code('SINKFLEX_STORE_CLOSED'));
  t.throws(() => segment.pin(), code('SINKFLEX_STORE_CLOSED'));
});

t.test('refusals say why', async (t) => {
  t.throws(() => VersionedSegment.create({ slotBytes: 0 }), code('SINKFLEX_BAD_ARGUMENT'));
  t.throws(() => VersionedSegment.create({ slotBytes: 64, slots: 0 }), code('SINKFLEX_BAD_ARGUMENT'));
  t.throws(() => VersionedSegment.create({ slotBytes: 2 ** 45 }), code('SINKFLEX_MEMORY_SHORT'), 'more than the machine has');
  const segment = VersionedSegment.create({ slotBytes: 64 });
  const { address } = segment;
  t.throws(() => VersionedSegment.open({ ...address, nonce: '1' }), code('SINKFLEX_STORE_GONE'));
  t.throws(() => VersionedSegment.open({ ...address, controlFd: 0 }), code('SINKFLEX_STORE_GONE'));
  t.throws(() => VersionedSegment.open({ ...address, startTime: '1' }), code('SINKFLEX_STORE_GONE'), 'a reused pid');
  t.throws(() => VersionedSegment.open({ ...address, startTime: 'x' }), code('SINKFLEX_BAD_ARGUMENT'));
  segment.close();
});

t.test('full: the writer waits for a pin to be given back, or until its deadline', async (t) => {
  const segment = VersionedSegment.create({ slotBytes: 4096, slots: 2, maxSlots: 2 });
  await publish(segment, 0, 0);
  const holder = start({ act: 'hold', address: segment.address });
  await report(holder);
  await publish(segment, 0, 1);
  const full = (await segment.beginWrite({ timeoutMs: 50 }).catch((e: unknown) => e)) as Error;
  t.match(full, code('SINKFLEX_STORE_FULL'));
  t.match(full.message, `pid ${holder.pid} holds version 0.0`);
  const waiting = segment.beginWrite({ timeoutMs: 10_000 });
  holder.send('release');
  (await waiting).abort();
  await end(holder);
  t.pass('the release let it in');
});

t.test('a dead reader gives its slot back, a stopped one does not', async (t) => {
  const segment = VersionedSegment.create({ slotBytes: 4096, slots: 2, maxSlots: 2 });
  await publish(segment, 0, 0);
  const holder = start({ act: 'hold', address: segment.address });
  await report(holder);
  await publish(segment, 0, 1);
  holder.kill('SIGSTOP');
  await t.rejects(segment.beginWrite({ timeoutMs: 150 }), code('SINKFLEX_STORE_FULL'));
  const waiting = segment.beginWrite({ timeoutMs: 10_000 });
  holder.kill('SIGKILL');
  (await waiting).abort();
  t.same(segment.pins(), []);
});

t.test('a writer that dies is recovered from, a living one is waited for', async (t) => {
  const segment = VersionedSegment.create({ slotBytes: 4096, slots: 2, maxSlots: 2 });
  await publish(segment, 0, 0);
  const writer = start({ act: 'write-and-hang', address: segment.address });
  await report(writer);
  const busy = (await segment.beginWrite({ timeoutMs: 50 }).catch((e: unknown) => e)) as Error;
  t.match(busy, code('SINKFLEX_STORE_BUSY'));
  t.match(busy.message, `process ${writer.pid}`);
  const waiting = segment.beginWrite({ timeoutMs: 10_000 });
  writer.kill('SIGKILL');
  (await waiting).publish({ lineage: 0, version: 1 });
  t.match(segment.current(), { version: 1 });
});

t.test('a segment ends with its creator; what was mapped stays readable', async (t) => {
  const host = fork(new URL(fixture.href.replace('segment-process', 'segment-host')), plain);
  const [address] = (await once(host, 'message')) as [SegmentAddress];
  const segment = VersionedSegment.open(address);
  const pin = segment.pin();
  await end(host);
  t.equal(pin.data[0], 7);
  t.equal(os.provenDead(address.pid, address.startTime), true);
  t.throws(() => VersionedSegment.open(address), code('SINKFLEX_STORE_GONE'));
});

t.test('pins end with the collector and with their thread', async (t) => {
  const segment = VersionedSegment.create({ slotBytes: 4096 });
  await publish(segment, 0, 0);
  let view: Uint8Array | undefined = (() => segment.pin().data)();
  const until = async (what: () => boolean): Promise<void> => {
    for (const deadline = Date.now() + PATIENCE_MS; !what() && Date.now() < deadline; ) {
      collect();
      await new Promise((resolve) => setImmediate(resolve));
    }
  };
  collect();
  await new Promise((resolve) => setImmediate(resolve));
  t.equal(segment.pins().length, 1, 'a view that is in use keeps its pin');
  t.equal(new Uint32Array(view.buffer)[0], fillOf({ lineage: 0, version: 0 }));
  view = undefined;
  await until(() => segment.pins().length === 0);
  t.equal(segment.pins().length, 0, 'collected');

  const source = `
    const { workerData, parentPort } = require('node:worker_threads');
    import(workerData.module).then(async ({ VersionedSegment }) => {
      const segment = VersionedSegment.open(workerData.address);
      globalThis.pin = segment.pin();
      globalThis.bytes = globalThis.pin.data;
      segment.waitForVersion(1000).catch(() => {});
      globalThis.writing = await segment.beginWrite();
      globalThis.slot = globalThis.writing.data;
      parentPort.postMessage('ready');
    });`;
  const module = new URL('../../kernels/segment.js', import.meta.url).href;
  const worker = new Worker(source, { eval: true, execArgv: [], env, workerData: { module, address: segment.address } });
  await once(worker, 'message');
  t.equal(segment.pins().length, 1);
  const began = Date.now();
  await worker.terminate();
  t.ok(Date.now() - began < 30_000, 'native waits do not hold up the end of a thread');
  t.equal(segment.pins().length, 0, 'its pin ended with it');
  (await segment.beginWrite({ timeoutMs: 1000 })).abort();
  t.pass('and so did its writing');
});

t.test('a flip costs the same whatever the size, and wakes other processes', async (t) => {
  for (const megabytes of [1, 64]) {
    const segment = VersionedSegment.create({ slotBytes: megabytes * 2 ** 20 });
    await publish(segment, 0, 0);
    const watcher = start({ act: 'watch', address: segment.address });
    await report(watcher);
    const flips: number[] = [];
    const wakes: number[] = [];
    for (let version = 1; version <= 20; version++) {
      const writing = await segment.beginWrite();
      writing.data.fill(version, 0, 4096);
      const woken = report(watcher);
      const before = process.hrtime.bigint();
      writing.publish({ lineage: 0, version });
      flips.push(Number(process.hrtime.bigint() - before) / 1000);
      const seen = await woken;
      if (seen.kind === 'woken') wakes.push(seen.latencyNs / 1000);
    }
    const median = (values: number[]): number => values.sort((a, b) => a - b)[values.length >> 1]!;
    t.ok(
      median(flips) < 1000,
      `${megabytes} MiB: publish ${median(flips).toFixed(0)} us, seen by another process after ${median(wakes).toFixed(0)} us`,
    );
    await end(watcher);
    segment.close();
  }
});

t.test('readers and writers killed at seeded points: no torn read, no lost lock, no leaked slot', async (t) => {
  const segment = VersionedSegment.create({ slotBytes: 256 * 1024, slots: 3, maxSlots: 6, readers: 64 });
  await publish(segment, 0, 0);
  let state = 20261129;
  const random = (below: number): number => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
  const torn: Report[] = [];
  const last = new Map<ChildProcess, number>();
  let killed = 0;
  const life = async (act: 'read' | 'write'): Promise<void> => {
    const child = start({ act, address: segment.address });
    let left = 1 + random(12);
    child.on('message', (message: Report) => {
      if (message.kind === 'torn') torn.push(message);
      if (message.kind !== 'progress') return;
      const order = message.version.lineage * 2 ** 32 + message.version.version;
      if (order < (last.get(child) ?? 0)) t.fail('a process saw versions go back');
      last.set(child, order);
      if (--left === 0) child.kill('SIGKILL');
    });
    await once(child, 'exit');
    killed++;
  };
  const lives = async (act: 'read' | 'write', count: number): Promise<void> => {
    for (let i = 0; i < count; i++) await life(act);
  };
  await Promise.all([lives('read', 4), lives('read', 4), lives('write', 4), lives('write', 4)]);
  t.equal(killed, 16);
  t.same(torn, []);
  const now = segment.current()!;
  // Five pinned slots and one to write to: every slot is needed, so every dead pin must go.
  for (let i = 1; i <= 6; i++) {
    await publish(segment, now.lineage, now.version + i);
    if (i < 6) segment.pin();
  }
  t.same(
    new Set(segment.pins().map((pin) => pin.pid)),
    new Set([process.pid]),
    'the rows of the dead are cleared by whoever needs their slot',
  );
  t.ok(now.version > 0 && segment.slots <= 6);
});
