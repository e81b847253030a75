// Blocks: pins, claims that come too late, reuse, what a dead reader or a closed channel leaves, and the account of the host.
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Worker } from 'node:worker_threads';
import t from 'tap';
import {
  BlockPool,
  closeView,
  makeBlockAccount,
  newBlockChannel,
  openBlock,
  type SharedBlock,
  tellViews,
} from '../../kernels/shared-block.ts';
import { until } from '../until.ts';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;
const turn = () => new Promise<void>((resolve) => setImmediate(resolve));
const fixture = new URL(`./fixtures/shared-block-process${import.meta.url.endsWith('.ts') ? '.ts' : '.js'}`, import.meta.url);
const { NODE_OPTIONS: _, ...env } = process.env;
const MIB = 2 ** 20;
const full = { code: 'SINKFLEX_OBJECT_STORE_FULL' };

const account = makeBlockAccount(16 * MIB);
const pool = new BlockPool(account.address);
const children = new Set<ChildProcess>();
t.teardown(() => {
  for (const child of children) child.kill('SIGKILL');
});

const untilCollected = (what: string, done: () => boolean): Promise<void> =>
  until(what, () => {
    collect();
    return done();
  });

function made(bytes: number, fill: number): SharedBlock {
  const block = pool.create(bytes);
  block.write([0], [new Uint8Array(bytes).fill(fill)]);
  return block;
}

t.test('a pin is taken by whoever opens, and given back with its last view', async (t) => {
  const block = made(MIB, 1);
  block.sent(newBlockChannel());
  t.match(block.state(), { pins: 0, inFlight: 1 });
  const adopted = openBlock(block.descriptor, false) as ArrayBuffer;
  t.match(block.state(), { pins: 1, inFlight: 0, holders: [process.pid] });
  const claimed = openBlock(block.descriptor, true) as ArrayBuffer;
  t.equal(block.state().pins, 2);
  new Uint8Array(adopted)[0] = 9;
  t.equal(new Uint8Array(claimed)[0], 1, 'each view is private');
  closeView(adopted);
  closeView(claimed);
  t.equal(adopted.byteLength, 0);
  await untilCollected('both pins are back', () => block.state().pins === 0);
  block.release();
  t.throws(() => block.state(), { code: 'SINKFLEX_MEMORY_GONE' });
});

t.test('V8 counts views when it is told of them', async (t) => {
  const block = made(4 * MIB, 1); // V8 counts it from here on
  block.count();
  const before = tellViews(0).external;
  const view = openBlock(block.descriptor, true) as ArrayBuffer;
  const counted = (slack: number) => tellViews(slack * MIB).external - before;
  if (tellViews(4 * MIB).views === 0) {
    closeView(view);
    block.release();
    return t.pass('built without the headers of V8: views are counted when they are made');
  }
  t.equal(counted(4), 0, 'not when one is made');
  t.equal(counted(3), MIB, 'all but the slack');
  t.equal(counted(0), 4 * MIB);
  t.equal(counted(3), 4 * MIB, 'nothing is taken back that is there');
  closeView(view);
  await untilCollected('the view is gone', () => tellViews(0).views === 0);
  t.equal(counted(0), 0);
  block.release();
});

t.test('a view that was transferred keeps its pin, in another thread too', async (t) => {
  const block = made(MIB, 3);
  let moved: ArrayBuffer | undefined = openBlock(block.descriptor, true) as ArrayBuffer;
  moved = structuredClone(moved, { transfer: [moved] });
  collect();
  await turn();
  t.equal(block.state().pins, 1);
  t.equal(new Uint8Array(moved)[MIB - 1], 3);
  const code = `const { parentPort } = require('node:worker_threads');
    parentPort.on('message', (view) => parentPort.postMessage(new Uint8Array(view)[7]));`;
  const worker = new Worker(code, { eval: true });
  worker.postMessage(moved, [moved]);
  moved = undefined;
  t.equal((await once(worker, 'message'))[0], 3);
  collect();
  await turn();
  t.equal(block.state().pins, 1, 'the thread has it');
  await worker.terminate();
  await untilCollected('the thread is gone, and the pin with it', () => block.state().pins === 0);
  block.release();
});

t.test('memory is used again only when nobody reads it, and old descriptors open nothing', async (t) => {
  const block = made(MIB, 1);
  const old = block.descriptor;
  const view = openBlock(old, true) as ArrayBuffer;
  block.release();
  t.equal(openBlock(old, true), undefined, 'the content is over');
  const other = made(MIB, 2);
  t.equal(new Uint8Array(view)[MIB - 1], 1, 'the reader keeps what it had');
  other.release();
  const blocks = pool.stats().blocks;
  closeView(view);
  await turn();
  const again = made(MIB, 3);
  const more = made(MIB, 4);
  t.equal(pool.stats().blocks, blocks, 'both were there already');
  t.equal(openBlock(old, true), undefined, 'also in its next life');
  again.release();
  more.release();
  t.throws(() => openBlock(new Uint8Array(39), true), { code: 'SINKFLEX_BAD_ARGUMENT' });
  t.throws(() => openBlock(new Uint8Array(40), true), { code: 'SINKFLEX_BAD_ARGUMENT' });
});

t.test('sealed content stays, whatever its owner writes', (t) => {
  const block = pool.create(MIB);
  const own = new Uint8Array(block.view());
  own.fill(5);
  block.seal();
  own.fill(6);
  t.equal(own[0], 6);
  t.equal(new Uint8Array(openBlock(block.descriptor, true) as ArrayBuffer)[0], 5);
  block.release();
  t.end();
});

t.test('large content arrives whole, and what a reader writes stays with it', (t) => {
  // Odd places and lengths, short and long pieces, with gaps that are not written.
  const pieces = [
    { at: 1, bytes: 3 },
    { at: 70, bytes: 4097 },
    { at: 5003, bytes: 5 * MIB },
    { at: 5 * MIB + 5011, bytes: 37 },
  ];
  const block = new BlockPool(makeBlockAccount(16 * MIB).address).create(5 * MIB + 6000);
  const own = new Uint8Array(block.view());
  own.fill(0xee);
  const sources = pieces.map(({ bytes: length }, k) => Uint8Array.from({ length }, (_, i) => (i * 31 + (i >> 12) + k) & 0x7f));
  block.write(
    pieces.map(({ at }) => at),
    sources,
  );
  const expected = new Uint8Array(block.bytes).fill(0xee);
  pieces.forEach(({ at }, k) => {
    expected.set(sources[k]!, at);
  });
  t.equal(Buffer.compare(own, expected), 0);
  const first = new Uint8Array(openBlock(block.descriptor, true) as ArrayBuffer);
  for (let at = 0; at < first.length; at += 2 * MIB - 1) first[at] = 1;
  t.equal(Buffer.compare(new Uint8Array(openBlock(block.descriptor, true) as ArrayBuffer), expected), 0);
  block.release();
  t.end();
});

t.test('the account counts all processes, and forgets the dead', async (t) => {
  const before = pool.stats().hostUsed;
  const child = fork(fixture, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'], execArgv: [], env });
  children.add(child);
  const block = made(2 * MIB, 7);
  child.send({ account: account.address, bytes: 6 * MIB, descriptor: [...block.descriptor] });
  t.same((await once(child, 'message'))[0], { seen: 7 });
  t.ok(pool.stats().hostUsed >= before + 8 * MIB);
  t.same(block.state().holders, [child.pid]);
  t.throws(() => pool.create(9 * MIB), full);
  t.throws(() => pool.create(6 * MIB, 6 * MIB), full, 'some of it is reserved');
  child.kill('SIGKILL');
  await once(child, 'exit');
  const now = pool.create(9 * MIB);
  t.ok(pool.stats().hostUsed < 16 * MIB, 'what the dead had is free');
  now.release();
  block.release();
  await untilCollected('the pin of the dead reader is dropped', () => {
    pool.trim();
    return pool.stats().waiting === 0;
  });
  t.equal(pool.stats().held, 0);
  pool.leave();
  await untilCollected('all is given back', () => pool.stats().used === 0);
});
