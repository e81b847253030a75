// Shared memory in one process and between processes: who sees what, what lives how long, and what is refused.
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import t from 'tap';
import { SharedMemory, type SharedMemoryAddress } from '../../kernels/shared-memory.ts';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;
const turn = () => new Promise<void>((resolve) => setImmediate(resolve));
const fixture = new URL(`./fixtures/shared-memory-process${import.meta.url.endsWith('.ts') ? '.ts' : '.js'}`, import.meta.url);
const { NODE_OPTIONS: _, ...env } = process.env;
const children = new Set<ChildProcess>();
t.teardown(() => {
  for (const child of children) child.kill('SIGKILL');
});

function start(): ChildProcess {
  const child = fork(fixture, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'], execArgv: [], env });
  children.add(child);
  return child;
}

async function ask(child: ChildProcess, address: SharedMemoryAddress, mode: 'shared' | 'private', mark: number): Promise<unknown> {
  child.send({ address, mode, mark });
  return (await once(child, 'message'))[0];
}

const mapped = (): number => (readFileSync('/proc/self/maps', 'utf8').match(/memfd:sinkflex-/g) ?? []).length;
const held = (): number =>
  readdirSync('/proc/self/fd').filter((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`).startsWith('/memfd:sinkflex-');
    } catch {
      return false;
    }
  }).length;

const gone = { code: 'SINKFLEX_MEMORY_GONE', name: 'SinkflexError' };
const bad = { code: 'SINKFLEX_BAD_ARGUMENT', name: 'SinkflexError' };

t.test('shared is seen by all, private stays where it was written', async (t) => {
  const memory = SharedMemory.create(8192);
  const bytes = memory.view();
  t.equal(bytes.length, 8192);
  t.ok(bytes.every((byte) => byte === 0));
  bytes[0] = 1;

  const here = SharedMemory.open(memory.address);
  t.equal(here.view()[0], 1);
  here.view()[1] = 7;
  t.equal(bytes[1], 7);
  const own = SharedMemory.open(memory.address, 'private').view();
  t.equal(own[0], 1);
  own[0] = 99;
  t.equal(bytes[0], 1);
  bytes[0] = 2;
  t.equal(own[0], 99, 'a page that was written here is a copy');
  bytes[4096] = 3;
  t.equal(own[4096], 3, 'a page that was not is shared still');

  const child = start();
  t.same(await ask(child, structuredClone(memory.address), 'private', 50), { seen: 2, now: 50 });
  t.equal(bytes[0], 2);
  t.same(await ask(child, memory.address, 'shared', 51), { seen: 2, now: 51 });
  t.equal(bytes[0], 51);
  const cells = new Int32Array(bytes.buffer, 64, 2);
  t.equal(Atomics.add(cells, 0, 5), 0);
  t.equal(new Int32Array(here.view(64, 8).buffer, 0, 2)[0], 5);
});

t.test('views keep the mapping; released or collected, nothing is left', async (t) => {
  // What earlier tests left to the collector.
  for (let i = 0; i < 100 && mapped() > 0; i++) {
    collect();
    await turn();
  }
  const maps = mapped();
  const fds = held();
  let memory: SharedMemory | undefined = SharedMemory.create(1 << 20);
  const { address } = memory;
  const view = memory.view(4096, 16);
  const other = SharedMemory.open(address);
  const outlives = other.view();
  view[0] = 5;
  t.equal(held(), fds + 1, 'only its maker holds a descriptor');
  memory.release();
  t.equal(view.length, 0, 'its views are empty');
  t.throws(() => memory?.view(), gone);
  for (let i = 0; i < 100 && held() > fds; i++) await turn();
  t.equal(held(), fds);
  t.throws(() => SharedMemory.open(address), gone);
  t.equal(outlives[4096], 5, 'whoever had it open keeps it');
  other.release();
  for (let i = 0; i < 100 && mapped() > maps; i++) await turn();
  t.equal(mapped(), maps);

  memory = SharedMemory.create(16 << 20);
  let kept: Uint8Array | undefined = memory.view();
  memory = undefined;
  collect();
  await turn();
  collect();
  await turn();
  t.equal(kept[0], 0);
  t.equal(mapped(), maps + 1);
  const { external } = process.memoryUsage();
  const freed = () => external - process.memoryUsage().external;
  kept = undefined;
  for (let i = 0; i < 100 && (mapped() > maps || freed() < 8 << 20); i++) {
    collect();
    await turn();
  }
  t.equal(mapped(), maps);
  t.equal(held(), fds);
  t.ok(freed() >= 8 << 20, 'V8 counted the view');
});

t.test('write copies every size and alignment', (t) => {
  const memory = SharedMemory.create(48 << 20);
  const bytes = memory.view();
  for (const [offset, size, threads] of [
    [0, 0, 0],
    [3, 1, 0],
    [61, 4099, 1],
    [1, (5 << 20) + 13, 1],
    [127, (9 << 20) + 1, 2],
    [4096 + 17, (40 << 20) + 63, 0],
    [8, 1000, 7],
  ] as const) {
    const source = new Uint8Array(size);
    let state = size + 1;
    for (let i = 0; i < size; i++) {
      state = (state * 1103515245 + 12345) >>> 0;
      source[i] = state >>> 16;
    }
    bytes.fill(0xaa);
    memory.write(offset, source, threads);
    t.ok(Buffer.from(bytes.buffer, offset, size).equals(source), `${size} bytes at ${offset}`);
    t.ok(offset === 0 || bytes[offset - 1] === 0xaa, 'nothing before');
    t.equal(bytes[offset + size], 0xaa, 'nothing behind');
  }
  memory.write(16, new Float64Array([1.5, 2.5]).subarray(1));
  t.equal(new Float64Array(bytes.buffer, 16, 1)[0], 2.5);
  memory.write(32, new Uint8Array([9]).buffer);
  t.equal(bytes[32], 9);
  memory.release();
  t.end();
});

t.test('what cannot be is refused', async (t) => {
  for (const bytes of [0, -1, 1.5, Number.NaN, 2 ** 47]) t.throws(() => SharedMemory.create(bytes), bad, `${bytes} bytes`);
  t.throws(() => SharedMemory.create(2 ** 45), { code: 'SINKFLEX_MEMORY_SHORT' });
  const memory = SharedMemory.create(4096);
  t.throws(() => memory.view(4097), bad);
  t.throws(() => memory.view(1, 4096), bad);
  t.throws(() => memory.write(4090, new Uint8Array(7)), bad);
  t.throws(() => SharedMemory.open({ ...memory.address, nonce: '1' }), gone, 'another object under that descriptor');
  t.throws(() => SharedMemory.open({ ...memory.address, fd: 0 }), gone);
  t.throws(() => SharedMemory.open({ ...memory.address, bytes: 8192 }), gone, 'more than it has');
  t.throws(() => SharedMemory.open({ ...memory.address, nonce: 'x' }), bad);
  const child = start();
  t.same(await ask(child, memory.address, 'shared', 1), { seen: 0, now: 1 });
  child.kill('SIGKILL');
  await once(child, 'exit');
  t.throws(() => SharedMemory.open({ ...memory.address, pid: child.pid! }), gone, 'its maker is dead');
});
