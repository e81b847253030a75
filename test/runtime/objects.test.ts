// Large values: through shared memory between workers of a host, to disk when it is short, and gone when nobody needs them.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import t from 'tap';
import { type ActorHandle, allocate, get, init, kill, type ObjectRef, put, ready, shutdown, spawn, wait } from '../../runtime/index.ts';
import { Channel, loopback } from '../../runtime/wire/index.ts';
import { session } from '../../runtime/worker/index.ts';
import { until } from '../until.ts';
import { Keeper, settle, sharedHere } from './fixtures/objects.ts';

delete process.env.NODE_OPTIONS;
const KIB = 1024;
const MIB = 1024 * KIB;
const store = () => session().store!;
const turn = () => new Promise<void>((resolve) => setImmediate(resolve));

function filled<T extends { length: number; [index: number]: number }>(values: T, seed: number): T {
  for (let i = 0; i < values.length; i++) values[i] = (i * 31 + seed) % 251;
  return values;
}

t.test('what went in comes out, whatever its kind and size, in a process, a thread, a shared worker and the driver itself', async (t) => {
  await init({ onOutput: () => {} });
  t.teardown(() => shutdown());
  const types = [
    Uint8Array,
    Int8Array,
    Uint8ClampedArray,
    Int16Array,
    Uint16Array,
    Int32Array,
    Uint32Array,
    Float32Array,
    Float64Array,
  ] as const;
  const value = () => ({
    small: types.map((type, i) => filled(new type(3 + i), i)),
    large: types.map((type, i) => filled(new type(70_000 + i), i)),
    offset: filled(new Uint8Array(100_000), 5).subarray(3, 90_001),
    bigints: [new BigInt64Array(10_000).fill(-5n), new BigUint64Array([1n, 2n ** 63n])],
    view: new DataView(filled(new Uint8Array(66_000), 9).buffer, 8, 65_800),
    buffer: filled(new Uint8Array(80_000), 7).buffer,
    node: Buffer.from(filled(new Uint8Array(70_000), 11)),
    shared: filled(new Float32Array(new SharedArrayBuffer(4 * 20_000)), 3),
    none: new Float32Array(0),
    medium: Array.from({ length: 40 }, (_, i) => filled(new Float32Array(900 + i), i)),
    map: new Map([['k', new Set([1])]]),
    text: 'x'.repeat(100_000),
  });
  const same = (got: ReturnType<typeof value>, where: string): void => {
    const expected = value();
    const bytesOf = (array: ArrayBufferView) => Buffer.from(array.buffer, array.byteOffset, array.byteLength);
    for (const key of ['small', 'large', 'medium', 'bigints'] as const) {
      t.ok(
        expected[key].every((array, i) => got[key][i]!.constructor === array.constructor && bytesOf(array).equals(bytesOf(got[key][i]!))),
        `${where}: ${key}`,
      );
    }
    for (const key of ['offset', 'view', 'node', 'shared'] as const)
      t.ok(bytesOf(expected[key]).equals(bytesOf(got[key])), `${where}: ${key}`);
    t.ok(got.view instanceof DataView && got.buffer instanceof ArrayBuffer && got.none instanceof Float32Array);
    t.ok(Buffer.from(expected.buffer).equals(Buffer.from(got.buffer)), `${where}: buffer`);
    t.equal(got.none.length, 0);
    t.same([...got.map.get('k')!], [1]);
    t.equal(got.text, expected.text);
  };
  for (const isolation of ['process', 'thread', 'shared'] as const) {
    const keeper = spawn(Keeper, { isolation });
    await ready(keeper);
    same((await keeper.echo(value())) as ReturnType<typeof value>, isolation);
    const ref = put(value());
    same((await keeper.echo(ref)) as ReturnType<typeof value>, `${isolation}, put`);
    ref.release();
    await kill(keeper);
  }
  const own = put(value());
  same(await get(own), 'here');
  own.release();
  t.ok(store().stats.used > 0, 'it went through shared memory');
});

t.test('messages of every mix of sizes keep their bytes over one channel', async (t) => {
  await init({ onOutput: () => {} });
  t.teardown(() => shutdown());
  const sizes = fc.oneof(fc.nat(100), fc.nat(9000), fc.integer({ min: 60_000, max: 70_000 }), fc.constant(200_001));
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.tuple(fc.array(sizes, { maxLength: 5 }), fc.boolean(), fc.boolean()), { maxLength: 12 }),
      async (messages) => {
        const got: unknown[][] = [];
        const [here, there] = loopback();
        const handler = { onMessage: (_: Channel, message: unknown[]) => void got.push(message), onClose: () => {} };
        const sender = new Channel(1, here, handler);
        const receiver = new Channel(2, there, handler);
        sender.open();
        receiver.open();
        let sent = 0;
        for (const [lengths, fails, flushes] of messages) {
          if (fails) t.throws(() => sender.send([lengths.map((length) => new Uint8Array(length)), () => {}]));
          sender.send([sent++, lengths.map((length, i) => filled(new Uint8Array(length), i)), { shape: lengths.length }]);
          if (flushes) sender.flush();
        }
        await until('all arrived', () => got.length === sent);
        got.forEach(([number, arrays], k) => {
          if (number !== k) throw new Error(`message ${String(number)} came at ${k}`);
          messages[k]![0].forEach((length, i) => {
            if (!Buffer.from((arrays as Uint8Array[])[i]!).equals(filled(Buffer.alloc(length), i)))
              throw new Error(`array ${i} of ${k} differs`);
          });
        });
        sender.close();
      },
    ),
    { numRuns: 10, seed: 7 },
  );
});

t.test('a stray write stays with its writer; what the sender changes later is not what was sent', async (t) => {
  await init({ onOutput: () => {} });
  t.teardown(() => shutdown());
  for (const isolation of ['process', 'thread', 'shared'] as const) {
    const [a, b] = [spawn(Keeper, { isolation }), spawn(Keeper, { isolation })];
    const array = new Uint8Array(MIB).fill(1);
    const call = a.scribble(array);
    array.fill(2);
    t.equal(await call, 1);
    t.equal(array[0], 2);
    using ref = put(array);
    array.fill(3);
    t.equal(await a.scribble(ref), 2);
    t.equal(await b.scribble(ref), 2, 'another worker sees what was put');
    t.equal(await a.scribble(ref), 2, 'and so does the next call');
    const mine = await get(ref);
    t.equal(mine[0], 2);
    mine[0] = 9;
    t.equal(await b.scribble(ref), 2);
    t.equal((await a.echo({ ref } as never)) instanceof Object, true);
    await Promise.all([kill(a), kill(b)]);
  }
});

t.test('arrays made in shared memory are passed on as they are, and fixed by it', async (t) => {
  await init({ onOutput: () => {} });
  t.teardown(() => shutdown());
  const keeper = spawn(Keeper);
  const batch = allocate(Float64Array, MIB / 8).fill(1);
  const before = store().stats.used;
  using ref = put({ batch, part: batch.subarray(10, 10 + 20_000), label: 'b' });
  t.ok(store().stats.used - before < MIB / 2, 'nothing was copied');
  batch.fill(7);
  t.equal(batch[0], 7);
  const got = await get(ref as ObjectRef<{ batch: Float64Array; part: Float64Array; label: string }>);
  t.same([got.batch[0], got.batch.length, got.part[0], got.part.length, got.label], [1, MIB / 8, 1, 20_000, 'b']);
  got.batch[0] = 99;
  const echoed = (await keeper.echo(ref)) as { batch: Float64Array; part: Float64Array };
  t.same([echoed.batch[0], echoed.part[19_999]], [1, 1]);
  t.equal(await keeper.sum(allocate(Float64Array, 20_000).fill(2)), 40_000);
  t.equal((await keeper.made(MIB, 5))[7], 5, 'a result');
  t.equal(allocate(Uint8Array, 10).length, 10);
  t.throws(() => allocate(Uint8Array, -1), { code: 'SINKFLEX_BAD_OPTION' });
});

t.test('views outlive the ref and its owner; new readers of a lost value are told', async (t) => {
  await init({ onOutput: () => {} });
  t.teardown(() => shutdown());
  const [owner, reader] = [spawn(Keeper, { name: 'owner' }), spawn(Keeper, { name: 'reader' })];
  const { ref } = await owner.make(4 * MIB, 6);
  const second = (await owner.make(4 * MIB, 8)).ref;
  const view = await get(ref);
  await reader.keep(ref);
  t.equal(await reader.readNested({ ref } as never), 6);
  await owner.die().catch(() => {});
  t.equal(view[4 * MIB - 1], 6);
  t.equal(await reader.keptSum(), 6 * 4 * MIB);
  await t.rejects(get(second), { code: 'SINKFLEX_OBJECT_LOST' });
  await t.rejects(Promise.resolve(reader.keep(second)), { code: 'SINKFLEX_OBJECT_LOST' });
  await reader.drop();
});

t.test('wait without fetch leaves the value where it is', async (t) => {
  await init({ onOutput: () => {} });
  t.teardown(() => shutdown());
  const owner = spawn(Keeper);
  const small = (await owner.make(10, 1)).ref;
  const large = (await owner.make(MIB, 2)).ref;
  const { maps } = sharedHere();
  t.same((await wait([small, large], { numReturns: 2, fetch: false })).done, [small, large]);
  t.equal(sharedHere().maps, maps);
  t.equal((await wait([large], { numReturns: 1 })).done.length, 1);
  t.ok(sharedHere().maps > maps);
  await kill(owner);
  t.equal((await wait([small], { fetch: false, timeoutMs: 10_000 })).done.length, 1, 'an owner that is gone will not change its mind');
});

t.test('nothing is left: of objects, messages, nested refs and readers that were killed', async (t) => {
  const start = sharedHere();
  await init({ onOutput: () => {} });
  const keeper = spawn(Keeper);
  await ready(keeper);
  const array = filled(new Uint8Array(66 * KIB), 1);
  const expected = await keeper.sum(array);
  const inner = put(array);
  // A function of its own: what a suspended function once had in a variable is not collected.
  const work = async (): Promise<void> => {
    for (let round = 0; round < 10; round++) {
      const refs = Array.from({ length: 100 }, (_, i) => put(i % 10 === 0 ? { array, inner } : array));
      const sums = await Promise.all(refs.slice(1, 10).map((ref) => keeper.sum(ref as ObjectRef<Uint8Array>)));
      if (sums.some((sum) => sum !== expected)) throw new Error('a reader saw something else');
      if (round % 2 === 0) for (const ref of refs) ref.release();
      await keeper.echo(array);
      if (round % 5 === 0) await settle();
    }
  };
  await work();
  inner.release();
  await settle();
  await until('all values are collected', async () => {
    await settle();
    return store().list().length === 0 && session().loans.size === 0;
  });
  await keeper.shared();
  // A reader that is killed with views and with messages that it never opened.
  const victim = spawn(Keeper);
  await victim.keep(array);
  const pid = await victim.pid();
  process.kill(pid, 'SIGSTOP');
  const calls = Array.from({ length: 5 }, () => victim.sum(array));
  await turn();
  process.kill(pid, 'SIGKILL');
  await Promise.allSettled(calls);
  const { used, held } = store().stats;
  t.ok(used < 60 * MIB, `${used} bytes`);
  t.equal(held, 0);
  await shutdown();
  await until('the memory is given back', async () => {
    await settle();
    const now = sharedHere();
    return now.descriptors <= start.descriptors && now.maps <= start.maps;
  });
  t.pass('descriptors and maps are as before');
});

t.test('what has no room in memory goes to disk, checked, and comes back', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'sinkflex-test-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  await init({ onOutput: () => {}, objectStoreMemory: 8 * MIB, spillFolder: folder });
  t.teardown(() => shutdown());
  const keeper = spawn(Keeper) as ActorHandle<typeof Keeper>;
  await ready(keeper);
  const files = () => readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  const refs = Array.from({ length: 20 }, (_, i) => put(new Uint8Array(MIB).fill(i + 1)));
  const places = () =>
    store()
      .list()
      .map((object) => object.place);
  t.ok(places().includes('disk') && places().includes('memory'), places().join());
  t.ok(store().stats.hostUsed <= 8 * MIB);
  for (const [i, ref] of refs.entries()) {
    t.equal(await keeper.sum(ref), (i + 1) * MIB);
    if (i % 5 !== 0) continue;
    t.equal((await get(ref))[5], i + 1);
    await keeper.shared();
    await settle();
  }
  // Beyond the store large messages travel in the frames.
  const views = await Promise.all(refs.slice(0, 7).map((ref) => get(ref)));
  const big = filled(new Uint8Array(6 * MIB), 2);
  t.equal(await keeper.sum(big), await keeper.sum(big));
  t.equal(
    views.reduce((sum, view) => sum + view[0]!, 0),
    28,
  );

  t.ok(places().includes('disk'));
  for (const file of files()) writeFileSync(join(file.parentPath ?? file.path, file.name), 'damaged', { flag: 'r+' });
  const results = await Promise.allSettled(refs.map((ref) => ref));
  t.ok(results.some((result) => result.status === 'rejected'));
  for (const result of results) if (result.status === 'rejected') t.match(result.reason, { code: 'SINKFLEX_OBJECT_LOST' });
  for (const ref of refs) ref.release();
  t.same(files(), [], 'files go with their values');
});

t.test('wrong options are refused', async (t) => {
  await t.rejects(init({ objectStoreMemory: 10 }), { code: 'SINKFLEX_BAD_OPTION' });
  await t.rejects(init({ spillFolder: '/nowhere/at/all' }), { code: 'SINKFLEX_BAD_OPTION' });
});

t.test('neither memory nor disk: an error that says so, and all works on', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'sinkflex-test-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  let small = false;
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=2m', 'tmpfs', folder], { stdio: 'ignore' });
    small = true;
    t.teardown(() => execFileSync('umount', ['-l', folder]));
  } catch {
    // Not root: a folder that is not there stands for a full one.
  }
  await init({ onOutput: () => {}, objectStoreMemory: 4 * MIB, spillFolder: folder });
  t.teardown(() => shutdown());
  if (!small) rmSync(folder, { recursive: true });
  const refs: ObjectRef<Uint8Array>[] = [];
  t.throws(
    () => {
      for (let i = 0; i < 20; i++) refs.push(put(new Uint8Array(MIB).fill(i)));
    },
    { code: 'SINKFLEX_OBJECT_STORE_FULL' },
  );
  t.ok(refs.length >= (small ? 4 : 3), `${refs.length} had room`);
  for (const [i, ref] of refs.entries()) t.equal((await get(ref))[0], i);
  t.equal(await spawn(Keeper).sum(new Uint8Array(MIB).fill(1)), MIB, 'messages have another way');
  for (const ref of refs) ref.release();
  await settle();
  using after = put(new Uint8Array(MIB).fill(3));
  t.equal((await get(after))[0], 3);
});
