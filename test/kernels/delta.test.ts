// Weight deltas: whatever the two versions are, what comes out is what went in, bit for bit; damage of any kind is noticed.
import fc from 'fast-check';
import t from 'tap';
import { applyDelta, encodeDelta } from '../../kernels/index.ts';

const seeded = (seed: number) => {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
};

type Kind = 'same' | 'sparse' | 'near' | 'noise' | 'blocks';

/** Two versions of `count` elements that differ as `kind` says. */
function versions(kind: Kind, count: number, elementBytes: 2 | 4, seed: number): [Uint8Array, Uint8Array] {
  const random = seeded(seed);
  const make = elementBytes === 2 ? () => new Uint16Array(count) : () => new Uint32Array(count);
  const [before, now] = [make(), make()];
  for (let i = 0; i < count; i++) {
    before[i] = random() * 2 ** (8 * elementBytes);
    const changed =
      kind === 'noise' ||
      kind === 'near' ||
      (kind === 'sparse' && random() < 0.02) ||
      (kind === 'blocks' && Math.floor(i / 5000) % 3 === 1);
    now[i] = !changed ? before[i]! : kind === 'noise' ? random() * 2 ** (8 * elementBytes) : before[i]! + Math.floor(random() * 9) - 4;
  }
  return [new Uint8Array(before.buffer), new Uint8Array(now.buffer)];
}

const kinds = fc.constantFrom<Kind>('same', 'sparse', 'near', 'noise', 'blocks');
const widths = fc.constantFrom<2 | 4>(2, 4);
/** Also a last block of few elements, whose code may be shorter than any header. */
const counts = fc.oneof(fc.nat(20_000), fc.nat(20), fc.integer({ min: 4096, max: 4116 }));

t.test('what comes out is what went in, from a change and from the whole', async (t) => {
  await fc.assert(
    fc.asyncProperty(kinds, widths, counts, fc.nat(), fc.constantFrom(1, 3), async (kind, elementBytes, count, seed, threads) => {
      const [before, now] = versions(kind, count, elementBytes, seed);
      for (const base of [before, undefined]) {
        const delta = await encodeDelta(base, now, { elementBytes, threads });
        if (delta.length > now.length + now.length / 4096 + 64) throw new Error(`${delta.length} bytes for ${now.length}`);
        const out = new Uint8Array(now.length).fill(0xee);
        await applyDelta(delta, base, out, { threads });
        if (Buffer.compare(out, now) !== 0) throw new Error('another outcome');
      }
    }),
    { numRuns: 150, seed: 1 },
  );
  t.pass();
});

t.test('several pieces of a mebibyte: the same bytes for any number of threads, few where little has changed', async (t) => {
  const [before, now] = versions('sparse', 1_700_003, 2, 7);
  const one = await encodeDelta(before, now, { elementBytes: 2 });
  t.same(Buffer.compare(one, await encodeDelta(before, now, { elementBytes: 2, threads: 4 })), 0);
  t.ok(one.length < 0.03 * now.length, `${one.length} of ${now.length} bytes`);
  const out = new Uint8Array(now.length);
  await applyDelta(one, before, out, { threads: 4 });
  t.equal(Buffer.compare(out, now), 0);
  const whole = await encodeDelta(undefined, now, { elementBytes: 2 });
  const [same] = [await encodeDelta(now, now, { elementBytes: 2 })];
  t.ok(same!.length < 1000 && whole.length > now.length);
});

t.test('bits that are special as numbers are bits like others', async (t) => {
  const floats = new Float32Array([0, -0, Number.NaN, Number.POSITIVE_INFINITY, -1e-45, 3.4e38, 1, -1]);
  const other = new Uint32Array([0xffffffff, 0, 0x7fc00001, 0x80000000, 1, 0x7f800000, 0xbf800000, 0x3f800001]);
  const [before, now] = [new Uint8Array(floats.buffer), new Uint8Array(other.buffer)];
  const out = new Uint8Array(now.length);
  await applyDelta(await encodeDelta(before, now, { elementBytes: 4 }), before, out);
  t.same(out, now);
});

t.test('damage is noticed: cut off, bits flipped, another base, another size', async (t) => {
  const damaged = { code: 'SINKFLEX_DELTA_DAMAGED' };
  const random = seeded(3);
  for (const kind of ['sparse', 'near', 'noise'] as const) {
    const [before, now] = versions(kind, 9000, 4, 5);
    const delta = await encodeDelta(before, now, { elementBytes: 4 });
    const out = new Uint8Array(now.length);
    for (let i = 0; i < 60; i++) {
      const cut = Math.floor(random() * delta.length);
      await t.rejects(applyDelta(delta.slice(0, cut), before, out), damaged, `cut after ${cut}`);
      const flipped = delta.slice();
      const at = Math.floor(random() * delta.length);
      flipped[at] = flipped[at]! ^ (1 << Math.floor(random() * 8));
      // Bits that fill up the last byte of a block mean nothing.
      const outcome = await applyDelta(flipped, before, out).then(
        () => (Buffer.compare(out, now) === 0 ? 'unharmed' : 'wrong'),
        (error) => error.code,
      );
      t.ok(outcome === 'unharmed' || outcome === damaged.code, `${kind}: a bit of byte ${at}: ${outcome}`);
    }
    const other = before.slice();
    other[4 * 4500] = other[4 * 4500]! ^ 1;
    if (kind !== 'noise') await t.rejects(applyDelta(delta, other, out), damaged, 'another base');
    await t.rejects(applyDelta(delta, undefined, out), damaged, 'no base');
    await t.rejects(applyDelta(delta, before.slice(4), out.slice(4)), damaged, 'another size');
    await t.rejects(applyDelta(Buffer.from('nothing of the kind, but long enough'), before, out), damaged);
  }
});

t.test('arguments that make no sense are refused', async (t) => {
  const bad = { code: 'SINKFLEX_BAD_ARGUMENT' };
  const bytes = new Uint8Array(8);
  await t.rejects(async () => encodeDelta(new Uint8Array(4), bytes, { elementBytes: 4 }), bad);
  await t.rejects(async () => encodeDelta(undefined, new Uint8Array(7), { elementBytes: 2 }), bad);
  await t.rejects(async () => encodeDelta(undefined, bytes, { elementBytes: 3 as 2 }), bad);
  await t.rejects(async () => encodeDelta(undefined, 'bytes' as unknown as Uint8Array, { elementBytes: 2 }), bad);
});
