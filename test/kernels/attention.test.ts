// Sink attention over plain arrays: layouts, storage and variants agree with each other; wrong arguments are told.
import t from 'tap';
import {
  isSinkflexError,
  type SinkAttentionOptions,
  sinkAttention,
  sinkAttentionAsync,
  sinkAttentionBackward,
  sinkAttentionBackwardAsync,
} from '../../kernels/index.ts';
import { relativeError } from './engine-support.ts';

const [heads, kvHeads, headDim] = [4, 2, 19];

function values(count: number, salt: number): Float32Array {
  return Float32Array.from({ length: count }, (_, i) => Math.fround(Math.sin(1.7 * i + salt) * 1.3));
}

function inputs(n: number): SinkAttentionOptions<Float32Array> & { dout: Float32Array } {
  return {
    q: values(n * heads * headDim, 1),
    k: values(n * kvHeads * headDim, 2),
    v: values(n * kvHeads * headDim, 3),
    dout: values(n * heads * headDim, 4),
    sink: values(heads, 5),
    heads,
    kvHeads,
    headDim,
  };
}

/** Forward and backward, one after the other. */
function both(o: SinkAttentionOptions<Float32Array> & { dout: Float32Array; dlse?: Float32Array }): Record<string, Float32Array> {
  const forward = sinkAttention(o);
  return { ...forward, ...sinkAttentionBackward({ ...o, ...forward }) };
}

/** [batch, length, heads, D] to [batch, heads, length, D]. */
function headMajor(x: Float32Array, batch: number, length: number, count: number): Float32Array {
  const to = new Float32Array(x.length);
  for (let b = 0; b < batch; b++)
    for (let i = 0; i < length; i++)
      for (let h = 0; h < count; h++) {
        const at = ((b * length + i) * count + h) * headDim;
        to.set(x.subarray(at, at + headDim), ((b * count + h) * length + i) * headDim);
      }
  return to;
}

t.test('a batch is its entries packed; head-major arrays and a fused projection are the same numbers', (t) => {
  const [batch, length] = [3, 70];
  const o = { ...inputs(batch * length), window: 20, prefix: 2 };
  const packed = both({ ...o, cuSeqlens: Int32Array.of(0, 70, 140, 210) });
  t.same(both({ ...o, batch }), packed);
  const strides = (count: number): { batch: number; token: number; head: number } => ({
    batch: count * length * headDim,
    token: headDim,
    head: length * headDim,
  });
  t.same(
    both({
      ...o,
      q: headMajor(o.q, batch, length, heads),
      k: headMajor(o.k, batch, length, kvHeads),
      v: headMajor(o.v, batch, length, kvHeads),
      dout: headMajor(o.dout, batch, length, heads),
      strides: { q: strides(heads), k: strides(kvHeads), v: strides(kvHeads), dout: strides(heads) },
      batch,
      length,
    }),
    packed,
    'head-major',
  );
  const width = (heads + 2 * kvHeads) * headDim;
  const fused = new Float32Array(batch * length * width);
  for (let i = 0; i < batch * length; i++) {
    fused.set(o.q.subarray(i * heads * headDim, (i + 1) * heads * headDim), i * width);
    fused.set(o.k.subarray(i * kvHeads * headDim, (i + 1) * kvHeads * headDim), i * width + heads * headDim);
    fused.set(o.v.subarray(i * kvHeads * headDim, (i + 1) * kvHeads * headDim), i * width + (heads + kvHeads) * headDim);
  }
  const apart = { token: width, head: headDim, batch: length * width };
  t.same(
    both({
      ...o,
      q: fused,
      k: fused.subarray(heads * headDim),
      v: fused.subarray((heads + kvHeads) * headDim),
      strides: { q: apart, k: apart, v: apart },
      batch,
      length,
    }),
    packed,
    'q, k and v in one array',
  );
  t.end();
});

t.test('threads change no bit, also of one long segment', (t) => {
  const o = { ...inputs(1100), dlse: values(1100 * heads, 6) };
  const one = both(o);
  for (const window of [-1, 40]) {
    const alone = window < 0 ? one : both({ ...o, window });
    for (const threads of [2, 5]) t.same(both({ ...o, window, threads }), alone, `window ${window}, ${threads} threads`);
  }
  t.end();
});

t.test('documents are segments, but for positions and the prefix', (t) => {
  const n = 150;
  const o = inputs(n);
  const documents = Int32Array.from({ length: n }, (_, i) => (i < 40 ? 7 : i < 41 ? 3 : 9));
  t.same(both({ ...o, documents }), both({ ...o, documents, threads: 3 }));
  const apart = both({ ...o, cuSeqlens: Int32Array.of(0, 40, 41, n) });
  for (const [name, data] of Object.entries(both({ ...o, documents }))) t.ok(relativeError(data, apart[name]!) < 1e-6, name);
  const seen = both({ ...o, documents, prefix: 40 });
  t.ok(relativeError(seen.out!.subarray(100), apart.out!.subarray(100)) > 1e-2, 'the prefix is seen by later documents');
  t.end();
});

t.test('bf16 storage, and calls that leave the event loop free', async (t) => {
  const n = 90;
  const o = inputs(n);
  const half = (x: Float32Array): Uint16Array => Uint16Array.from(new Uint32Array(x.buffer, x.byteOffset, x.length), (b) => b >>> 16);
  const whole = (x: Uint16Array): Float32Array => new Float32Array(Uint32Array.from(x, (b) => b << 16).buffer);
  const stored = { ...o, q: half(o.q), k: half(o.k), v: half(o.v), dout: half(o.dout) };
  const exact = both({ ...o, q: whole(stored.q), k: whole(stored.k), v: whole(stored.v), dout: whole(stored.dout) });
  const forward = sinkAttention(stored);
  const backward = sinkAttentionBackward({ ...stored, ...forward });
  t.same(forward.lse, exact.lse);
  for (const [name, data] of Object.entries({ out: forward.out, dq: backward.dq, dk: backward.dk, dv: backward.dv }))
    t.ok(relativeError(whole(data), exact[name]!) < 1e-2, name);
  const later = await sinkAttentionAsync(o);
  const gradients = await sinkAttentionBackwardAsync({ ...o, ...later });
  t.same({ ...later, ...gradients }, both(o));
});

t.test('wrong arguments are errors that say which', async (t) => {
  const o = inputs(10);
  const code = (f: () => unknown): string => {
    try {
      f();
      return 'none';
    } catch (e) {
      return isSinkflexError(e) ? `${e.code} ${e.message}` : String(e);
    }
  };
  const bad = (over: object): string => code(() => sinkAttention({ ...o, ...over }));
  t.match(bad({ k: values(7, 1) }), /SINKFLEX_BAD_ARGUMENT k /);
  t.match(bad({ heads: 3 }), /SINKFLEX_BAD_ARGUMENT/);
  t.match(bad({ cuSeqlens: Int32Array.of(0, 5, 4, 10) }), /SINKFLEX_BAD_ARGUMENT cuSeqlens/);
  t.match(bad({ cuSeqlens: Int32Array.of(0, 11) }), /SINKFLEX_BAD_ARGUMENT q /);
  t.match(bad({ strides: { q: { token: heads * headDim + 1, head: headDim } } }), /SINKFLEX_BAD_ARGUMENT q /);
  t.match(bad({ strides: { q: { token: -1, head: headDim } } }), /SINKFLEX_BAD_ARGUMENT strides.q.token/);
  t.match(bad({ v: new Uint16Array(10 * kvHeads * headDim) }), /SINKFLEX_BAD_ARGUMENT k and v/);
  t.match(bad({ documents: new Int32Array(9) }), /SINKFLEX_BAD_ARGUMENT documents/);
  t.match(bad({ sinkFunction: 'tanh' }), /SINKFLEX_BAD_ARGUMENT sinkFunction must be one of sigmoid/);
  t.match(bad({ softcap: Number.NaN }), /SINKFLEX_BAD_ARGUMENT softcap/);
  t.match(bad({ batch: 3 }), /SINKFLEX_BAD_ARGUMENT q /);
  await t.rejects(sinkAttentionAsync({ ...o, k: values(7, 1) }), { code: 'SINKFLEX_BAD_ARGUMENT' });
});
