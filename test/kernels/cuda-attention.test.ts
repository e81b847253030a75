// The CUDA attention kernels on the emulated machine: the golden cases, and shapes of every kind against the CPU backend.
// SINKFLEX_EMULATION_CASES=300 tries more shapes.
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import t from 'tap';
import {
  isSinkflexError,
  probeDevice,
  type SinkAttentionOptions,
  sinkAttention,
  sinkAttentionBackward,
  sinkFunctions,
} from '../../kernels/index.ts';
import { emulatedBackend, fromBf16, toBf16 } from './emulation.ts';
import { fixtures, maxDifference, readTensors, relativeError } from './engine-support.ts';

t.setTimeout(1_800_000);
const backend = await emulatedBackend();

interface AttentionCase {
  file: string;
  heads: number;
  kv_heads: number;
  head_dim: number;
  window: number;
  prefix: number;
  scale: number;
  cu_seqlens: number[];
  has_dlse: boolean;
}

const folder = join(fixtures ?? '', 'attention');
t.test('golden cases', { skip: existsSync(folder) ? false : 'golden files are not here: set SINKFLEX_FIXTURES' }, (t) => {
  const { cases } = JSON.parse(readFileSync(join(folder, 'index.json'), 'utf8')) as { cases: AttentionCase[] };
  for (const [i, c] of cases.entries()) {
    process.env.SINKFLEX_EMULATION_SEED = String(i);
    const io = readTensors(join(folder, c.file));
    const get = (name: string): Float32Array => io.get(name)!.data;
    const sink = get('sink');
    const inputs: SinkAttentionOptions<Uint16Array> = {
      q: toBf16(get('q')),
      k: toBf16(get('k')),
      v: toBf16(get('v')),
      sink,
      heads: c.heads,
      kvHeads: c.kv_heads,
      headDim: c.head_dim,
      cuSeqlens: Int32Array.from(c.cu_seqlens),
      window: c.window,
      prefix: c.prefix,
      scale: c.scale,
      backend,
    };
    const { out, lse } = sinkAttention(inputs);
    t.ok(maxDifference(fromBf16(out), get('out')) <= 2e-2, `${c.file} out`);
    t.ok(maxDifference(lse, get('lse_sink')) <= 1e-3, `${c.file} lse ${maxDifference(lse, get('lse_sink')).toExponential(1)}`);
    const dout = toBf16(get('dout'));
    const gradients = sinkAttentionBackward({ ...inputs, out, lse, dout });
    if (c.has_dlse) {
      // Theirs is the gradient of the sum over keys alone, without the sink's share of the row.
      const dlse = get('dlse').map((d, j) => d / (1 - Math.exp(sink[j % c.heads]! - lse[j]!)));
      const { dq, dk, dv } = sinkAttentionBackward({ ...inputs, out, lse, dout, dlse });
      Object.assign(gradients, { dq, dk, dv });
    }
    for (const [name, data] of Object.entries(gradients)) {
      const error = relativeError(data instanceof Uint16Array ? fromBf16(data) : data, get(name));
      t.ok(error <= 2e-2, `${c.file} ${name} ${error.toExponential(1)}`);
    }
  }
  t.end();
});

/** Mutated builds have fewer head sizes. */
const mostHead = Number(process.env.SINKFLEX_EMULATION_MOST_HEAD ?? 256);

interface Shape {
  headDim: number;
  kvHeads: number;
  group: number;
  lengths: number[];
  window: number;
  prefix: number;
  softcap: number;
  slopes: boolean;
  documents: boolean;
  sinks: boolean;
  dlse: boolean;
  sinkFunction: (typeof sinkFunctions)[number];
  bf16: boolean;
  seed: number;
}

const shapes: fc.Arbitrary<Shape> = fc.record({
  headDim: fc.oneof(fc.constantFrom(64, 80, 96, 128), fc.integer({ min: 1, max: 40 }), fc.constant(mostHead)),
  kvHeads: fc.integer({ min: 1, max: 2 }),
  group: fc.integer({ min: 1, max: 3 }),
  lengths: fc.array(fc.oneof(fc.integer({ min: 0, max: 70 }), fc.constantFrom(1, 63, 64, 65, 128, 150)), { minLength: 1, maxLength: 3 }),
  window: fc.oneof(fc.constant(-1), fc.integer({ min: 0, max: 140 })),
  prefix: fc.oneof(fc.constant(0), fc.integer({ min: 1, max: 90 })),
  softcap: fc.constantFrom(0, 0, 2.5),
  slopes: fc.boolean(),
  documents: fc.boolean(),
  sinks: fc.boolean(),
  dlse: fc.boolean(),
  sinkFunction: fc.constantFrom('sigmoid', 'sigmoid', ...sinkFunctions),
  bf16: fc.boolean(),
  seed: fc.nat(1e6),
});

t.test('shapes of every kind agree with the CPU', { timeout: 1_800_000 }, (t) => {
  let tried = 0;
  fc.assert(
    fc.property(shapes, (s) => {
      tried++;
      const problem = disagreement(s);
      if (problem !== undefined) throw new Error(problem);
    }),
    { numRuns: Number(process.env.SINKFLEX_EMULATION_CASES ?? 14), seed: 8, endOnFailure: true },
  );
  t.ok(tried > 0, `${tried} shapes`);
  t.end();
});

t.test('wide heads, packed, and in both storages', (t) => {
  const plain = { kvHeads: 1, group: 2, prefix: 0, softcap: 0, slopes: false, documents: false, sinks: true, dlse: false, seed: 5 };
  for (const headDim of [80, 96, 128, 256].filter((d) => d <= mostHead))
    for (const bf16 of [true, false]) {
      const s: Shape = { ...plain, headDim, bf16, lengths: [100, 1, 33], window: headDim === 128 ? 40 : -1, sinkFunction: 'sigmoid' };
      t.equal(disagreement(s), undefined, `heads of ${headDim}, ${bf16 ? 'bf16' : 'float32'}`);
    }
  t.end();
});

t.test('documents begin where their own segment says', (t) => {
  const plain = {
    kvHeads: 2,
    group: 2,
    prefix: 3,
    softcap: 0,
    slopes: true,
    sinks: true,
    dlse: true,
    seed: 11,
    sinkFunction: 'sigmoid',
  } as const;
  for (const window of [-1, 50])
    t.equal(disagreement({ ...plain, headDim: 32, bf16: true, lengths: [100, 1, 140], window, documents: true }), undefined);
  t.end();
});

/** What differs between the emulated kernels and the CPU; undefined if nothing does. */
function disagreement(s: Shape): string | undefined {
  process.env.SINKFLEX_EMULATION_SEED = String(s.seed);
  const n = s.lengths.reduce((a, b) => a + b, 0);
  const heads = s.kvHeads * s.group;
  const random = generator(s.seed);
  const values = (count: number): Float32Array => fromBf16(toBf16(Float32Array.from({ length: count }, random)));
  const exact = {
    q: values(n * heads * s.headDim),
    k: values(n * s.kvHeads * s.headDim),
    v: values(n * s.kvHeads * s.headDim),
    dout: values(n * heads * s.headDim),
  };
  const cuSeqlens = Int32Array.of(0, ...s.lengths);
  for (let i = 1; i < cuSeqlens.length; i++) cuSeqlens[i]! += cuSeqlens[i - 1]!;
  const options = {
    heads,
    kvHeads: s.kvHeads,
    headDim: s.headDim,
    cuSeqlens,
    window: s.window,
    prefix: s.prefix,
    softcap: s.softcap,
    ...(s.slopes ? { slopes: Float32Array.from({ length: heads }, (_, h) => 0.02 * 2 ** -h) } : {}),
    ...(s.documents ? { documents: Int32Array.from({ length: n }, (_, i) => Math.floor((i + 7) / 29)) } : {}),
    ...(s.sinks ? { sink: Float32Array.from({ length: heads }, () => 2 * random()), sinkFunction: s.sinkFunction } : {}),
  };
  const dlse = s.dlse ? { dlse: Float32Array.from({ length: n * heads }, random) } : {};
  const forward = sinkAttention({ ...options, ...exact });
  const expected: Record<string, Float32Array> = { ...forward, ...sinkAttentionBackward({ ...options, ...exact, ...forward, ...dlse }) };
  const ours = s.bf16
    ? both({ q: toBf16(exact.q), k: toBf16(exact.k), v: toBf16(exact.v), dout: toBf16(exact.dout) }, options, dlse)
    : both(exact, options, dlse);
  for (const [name, data] of Object.entries(ours)) {
    const got = data instanceof Uint16Array ? fromBf16(data) : data;
    const want = expected[name]!;
    // Gradients of single sinks cancel: they are held against what they are sums of.
    const scale = name === 'dsink' ? 0.02 * Math.sqrt(n * s.headDim) : 0;
    const error = name === 'out' || name === 'lse' ? maxDifference(got, want) : relativeError(got, want);
    const most = name === 'lse' ? 1e-3 : 2e-2;
    if (!(error <= most) && !(maxDifference(got, want) <= 0.02 * scale)) return `${name}: ${error.toExponential(2)} > ${most}`;
  }
  return undefined;
}

function both<A extends Float32Array | Uint16Array>(
  arrays: { q: A; k: A; v: A; dout: A },
  options: Omit<SinkAttentionOptions<A>, 'q' | 'k' | 'v'>,
  dlse: { dlse?: Float32Array },
): Record<string, Float32Array | Uint16Array> {
  const call = { ...options, ...arrays, backend };
  const { out, lse } = sinkAttention<A>(call);
  return { out, lse, ...sinkAttentionBackward<A>({ ...call, out, lse, ...dlse }) };
}

/** Roughly normal numbers, seeded. */
function generator(seed: number): () => number {
  let state = (seed * 2654435761 + 1) >>> 0;
  const uniform = (): number => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
  return () => uniform() + uniform() + uniform() + uniform() - 2;
}

t.test('a backend that is not there, and heads that no kernel takes, are errors that say so', (t) => {
  const code = (call: () => unknown): string => {
    try {
      call();
      return 'none';
    } catch (e) {
      return isSinkflexError(e) ? `${e.code} ${e.message}` : String(e);
    }
  };
  t.match(probeDevice({ backend }), /emulated|compute capability/);
  t.match(
    code(() => probeDevice({ backend: 'nowhere.so' })),
    /SINKFLEX_BACKEND_MISSING .*nowhere.so/,
  );
  t.match(
    code(() => probeDevice({ backend: 'package.json' })),
    /SINKFLEX_BACKEND_MISSING .*does not load/,
  );
  t.match(
    code(() => probeDevice({ backend, device: 99 })),
    /SINKFLEX_DEVICE_UNAVAILABLE .*no GPU 99/,
  );
  const q = new Float32Array(2 * 300);
  t.match(
    code(() => sinkAttention({ q, k: q, v: q, heads: 1, kvHeads: 1, headDim: 300, backend })),
    /heads of 300; the CUDA kernels take up to/,
  );
  t.end();
});
