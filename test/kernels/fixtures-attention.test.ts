// The golden cases of sink attention: every folder of the fixtures with an index.json that lists cases. A case holds its tensors, or the seed
// of the stream that its inputs come from and some rows of what must come out.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { type SinkAttentionOptions, sinkAttention, sinkAttentionBackward } from '../../kernels/index.ts';
import { fingerprint, fixtures, integers, maxDifference, readTensors, relativeError, type Tensors } from './engine-support.ts';

interface AttentionCase {
  file: string;
  n: number;
  heads: number;
  kv_heads: number;
  head_dim: number;
  window: number;
  prefix: number;
  scale: number;
  cu_seqlens: number[];
  has_dlse?: boolean;
  seed?: number;
  /** For each tensor the error of a plain float32 implementation, and the largest value. */
  f32_tiled?: Record<string, [error: number, largest: number]>;
  fingerprint?: Record<string, [norm: number, sum: number]>;
}

const root = fixtures ?? '';
const suites = fixtures === undefined ? [] : readdirSync(root).filter((folder) => existsSync(join(root, folder, 'index.json')));

t.test('there are golden cases', { skip: fixtures ? false : 'golden files are not here: set SINKFLEX_FIXTURES' }, (t) => {
  t.ok(suites.length > 0, `a folder with an index.json in ${root}`);
  t.end();
});

for (const suite of suites) {
  t.test(suite, (t) => {
    const { cases } = JSON.parse(readFileSync(join(root, suite, 'index.json'), 'utf8')) as { cases: AttentionCase[] };
    t.ok(cases.length > 0);
    for (const c of cases) {
      const io = readTensors(join(root, suite, c.file));
      for (const threads of [1, 3]) {
        if (io.has('q')) whole(t, c, io, threads);
        else rows(t, c, io, threads);
      }
    }
    t.end();
  });
}

function options(c: AttentionCase, threads: number, get: (name: string) => Float32Array): SinkAttentionOptions<Float32Array> {
  return {
    q: get('q'),
    k: get('k'),
    v: get('v'),
    sink: get('sink'),
    heads: c.heads,
    kvHeads: c.kv_heads,
    headDim: c.head_dim,
    cuSeqlens: Int32Array.from(c.cu_seqlens),
    window: c.window,
    prefix: c.prefix,
    scale: c.scale,
    threads,
  };
}

/** A case that holds all its tensors. */
function whole(t: Test, c: AttentionCase, io: Tensors, threads: number): void {
  const get = (name: string): Float32Array => io.get(name)!.data;
  const inputs = options(c, threads, get);
  const forward = sinkAttention(inputs);
  // Theirs is the gradient of the sum over keys alone, lse_keys = lse + log(1 - e) with e = exp(sink - lse): dlse = dlse_keys / (1 - e), and
  // the sink has no part in it.
  const share = forward.lse.map((lse, i) => Math.exp(get('sink')[i % c.heads]! - lse));
  const dout = get('dout');
  const backward = sinkAttentionBackward({ ...inputs, ...forward, dout });
  if (io.has('dlse')) {
    const dlse = get('dlse').map((d, i) => d / (1 - share[i]!));
    const { dq, dk, dv } = sinkAttentionBackward({ ...inputs, ...forward, dout, dlse });
    Object.assign(backward, { dq, dk, dv });
  }
  const lse = forward.lse.map((x, i) => x + Math.log1p(-share[i]!));
  for (const [name, data] of Object.entries({ out: forward.out, lse_sink: forward.lse, ...backward })) {
    const [error, largest] = c.f32_tiled?.[name] ?? [2.5e-6, 1];
    const difference = maxDifference(data, get(name));
    t.ok(
      difference <= 4 * error + 1e-6 * largest + 1e-7,
      `${c.file} ${name}, ${threads} threads: ${difference.toExponential(1)}, yardstick ${error.toExponential(1)}`,
    );
  }
  // Where the sink holds nearly all of a row, the sum over the keys is not to be had from the sum with it.
  const plain = get('lse');
  t.ok(
    lse.every((x, i) => share[i]! > 0.99 || Math.abs(x - plain[i]!) <= 1e-4 + 1e-6 * Math.abs(plain[i]!)),
    `${c.file} lse`,
  );
}

/** The documented input stream of the big cases: splitmix64, exact in float32. */
function stream(seed: number, tensor: number, count: number): Float32Array {
  const golden = 0x9e3779b97f4a7c15n;
  const wrap = (x: bigint): bigint => BigInt.asUintN(64, x);
  const start = wrap(BigInt(seed * 16 + tensor) * golden + golden);
  return Float32Array.from({ length: count }, (_, i) => {
    let z = wrap(start + BigInt(i));
    z = wrap((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n);
    z = wrap((z ^ (z >> 27n)) * 0x94d049bb133111ebn);
    z ^= z >> 31n;
    return (Number(z >> 56n) - 128) / 64;
  });
}

/** A case of streamed inputs: some rows of every result, and a fingerprint of the whole. */
function rows(t: Test, c: AttentionCase, io: Tensors, threads: number): void {
  const [wide, narrow] = [c.n * c.heads * c.head_dim, c.n * c.kv_heads * c.head_dim];
  const made = new Map<string, Float32Array>();
  for (const [j, [name, count]] of Object.entries({ q: wide, k: narrow, v: narrow, dout: wide, sink: c.heads }).entries())
    made.set(name, stream(c.seed!, j, count));
  const get = (name: string): Float32Array => made.get(name)!;
  made.set(
    'sink',
    get('sink').map((x) => x + 1),
  );
  const inputs = options(c, threads, get);
  const { out, lse } = sinkAttention(inputs);
  const gradients = sinkAttentionBackward({ ...inputs, out, lse, dout: get('dout') });
  const chosen = [...integers(io.get('rows')!.data)];
  for (const [name, data] of Object.entries({ out, lse_sink: lse, ...gradients })) {
    const wanted = io.get(name);
    const width = data.length / c.n;
    if (wanted) {
      const ours = name === 'dsink' ? data : Float32Array.from(chosen.flatMap((row) => [...data.subarray(row * width, (row + 1) * width)]));
      const error = relativeError(ours, wanted.data);
      t.ok(
        error <= (name === 'out' || name === 'lse_sink' ? 1e-5 : 1e-4),
        `${c.file} ${name}, ${threads} threads: ${error.toExponential(1)}`,
      );
    }
    const print = c.fingerprint?.[name];
    if (!print) continue;
    const [norm, sum] = fingerprint(data);
    t.ok(
      Math.abs(norm - print[0]) <= 1e-4 * print[0] && Math.abs(sum - print[1]) <= 1e-4 * print[0] + 1e-3,
      `${c.file} ${name} as a whole`,
    );
  }
}
