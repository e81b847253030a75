// The golden files: checkpoints of every architecture and sink attention cases, computed in float64 and checked against transformers.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { Engine, readModelConfig, sinkAttention, sinkAttentionBackward, WeightStore } from '../../kernels/index.ts';
import {
  fingerprint,
  fixtures,
  generateOnce,
  integers,
  maxDifference,
  readTensors,
  relativeError,
  temporaryFolder,
} from './engine-support.ts';

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
  has_dlse: boolean;
  seed: number;
  f32_tiled: Record<string, [number, number]>;
  fingerprint: Record<string, [number, number]>;
}

const skip = fixtures ? false : 'golden files are not here: set SINKFLEX_FIXTURES';
const root = fixtures ?? '';
const json = <T>(...path: string[]): T => JSON.parse(readFileSync(join(root, ...path), 'utf8')) as T;

/** Every model folder of the golden files; which there are is the folder's affair. */
const models = fixtures ? readdirSync(join(root, 'models')) : [];

t.test('there are golden models', { skip }, (t) => {
  t.ok(models.length > 0);
  t.end();
});

for (const model of models) {
  t.test(`the checkpoint ${model} gives the golden numbers`, async (t) => {
    const folder = join(root, 'models', model);
    const store = WeightStore.create(readModelConfig(folder));
    store.loadFolder(folder);
    const engine = new Engine({ store, threads: 2, maxSequences: 4, maxSequenceTokens: 128 });
    t.teardown(() => engine.dispose());
    const io = readTensors(join(root, 'expected', model, 'io.safetensors'));
    const golden = (name: string): Float32Array => io.get(name)!.data;

    await t.test('log-probabilities and entropies of one sequence', async (t) => {
      const ids = integers(golden('input_ids'));
      const { logprobs, entropy } = await engine.forward({ ids, cuSeqlens: Int32Array.of(0, ids.length) });
      t.equal(logprobs[0], 0);
      t.ok(maxDifference(logprobs.subarray(1), golden('logprobs')) <= 2e-4, 'log-probabilities');
      t.ok(maxDifference(entropy.subarray(1), golden('entropy').subarray(0, ids.length - 1)) <= 2e-4, 'entropies');
    });

    await t.test('gradients of the mean cross entropy', async (t) => {
      const ids = integers(golden('input_ids'));
      engine.zeroGradients();
      await engine.forward({ ids, cuSeqlens: Int32Array.of(0, ids.length) }, { keep: true });
      await engine.backward({ dLogprobs: new Float32Array(ids.length).fill(-1 / (ids.length - 1)) });
      const gradients = engine.gradients();
      const expected = readTensors(join(root, 'expected', model, 'grads.safetensors'));
      t.same([...gradients.keys()].sort(), [...expected.keys()].sort(), 'the same parameters');
      for (const [name, { data }] of expected) {
        const error = relativeError(gradients.get(name)!, data);
        t.ok(error <= 2e-4, `${name} (${error.toExponential(1)})`);
      }
    });

    await t.test('packed sequences with weights', async (t) => {
      const [ids, cuSeqlens, weights] = [integers(golden('packed_ids')), integers(golden('packed_cu_seqlens')), golden('packed_weights')];
      const expected = json<{ packed: { loss: number; grad_fingerprint: Record<string, [number, number]> } }>(
        'expected',
        model,
        'case.json',
      ).packed;
      engine.zeroGradients();
      const { logprobs } = await engine.forward({ ids, cuSeqlens }, { keep: true });
      t.ok(maxDifference(logprobs, golden('packed_logprobs')) <= 2e-4, 'log-probabilities');
      const loss = -logprobs.reduce((sum, lp, i) => sum + lp * weights[i]!, 0);
      t.ok(Math.abs(loss - expected.loss) <= 1e-3, `loss ${loss}`);
      await engine.backward({ dLogprobs: weights.map((w) => -w) });
      const gradients = engine.gradients();
      for (const [name, [norm, sum]] of Object.entries(expected.grad_fingerprint)) {
        const [ourNorm, ourSum] = fingerprint(gradients.get(name)!);
        t.ok(Math.abs(ourNorm - norm) <= 2e-4 * norm + 1e-6 && Math.abs(ourSum - sum) <= 1e-3 * norm + 1e-5, name);
      }
    });

    await t.test('greedy decoding with the cache, and its log-probabilities again in one pass', async (t) => {
      const prompt = integers(golden('prompt_ids'));
      const result = await generateOnce(engine, { tokens: prompt, maxNewTokens: 32, stopTokens: [], temperature: 0, key: [0, 0, 0, 0] });
      t.same([...result.tokens], [...integers(golden('greedy_ids'))]);
      t.ok(maxDifference(result.logprobs, golden('greedy_logprobs')) <= 2e-4, 'log-probabilities');
      t.equal(result.stopReason, 'length');
      const ids = Int32Array.of(...prompt, ...result.tokens);
      const { logprobs } = await engine.forward({ ids, cuSeqlens: Int32Array.of(0, ids.length) });
      t.same(logprobs.subarray(prompt.length), result.logprobs, 'generation and training agree bit for bit');
    });

    await t.test('saved and read again, it is the same model', (t) => {
      const saved = temporaryFolder(t);
      store.saveFolder(saved);
      const again = WeightStore.create(readModelConfig(saved));
      t.teardown(() => again.close());
      again.loadFolder(saved);
      t.same(again.config, { ...store.config });
      const [ours, theirs] = [store.pin(), again.pin()];
      const copies = again.tensors(theirs);
      for (const [name, { data }] of store.tensors(ours)) t.same(copies.get(name)!.data, data, name);
      ours.release();
      theirs.release();
      t.end();
    });
  });
}

t.test('sink attention cases', { skip }, (t) => {
  for (const c of json<{ cases: AttentionCase[] }>('attention', 'index.json').cases) {
    const io = readTensors(join(root, 'attention', c.file));
    const get = (name: string): Float32Array => io.get(name)!.data;
    const inputs = {
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
    };
    const forward = sinkAttention(inputs);
    const backward = sinkAttentionBackward({ ...inputs, ...forward, dout: get('dout') });
    const ours: Record<string, Float32Array> = { out: forward.out, lse_sink: forward.lse, dv: backward.dv, dsink: backward.dsink };
    // A loss that also reads the log-sum-exp is nothing that reinforcement learning needs: its dq and dk are not offered.
    if (!c.has_dlse) Object.assign(ours, { dq: backward.dq, dk: backward.dk });
    for (const [name, data] of Object.entries(ours)) {
      const [error, largest] = c.f32_tiled[name]!;
      const difference = maxDifference(data, get(name));
      t.ok(
        difference <= 4 * error + 1e-6 * largest + 1e-7,
        `${c.file} ${name}: ${difference.toExponential(1)}, yardstick ${error.toExponential(1)}`,
      );
    }
  }
  t.end();
});

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

t.test('big sink attention cases', { skip }, (t) => {
  for (const c of json<{ cases: AttentionCase[] }>('attention_big', 'index.json').cases) {
    const expected = readTensors(join(root, 'attention_big', c.file));
    const wide = c.n * c.heads * c.head_dim;
    const narrow = c.n * c.kv_heads * c.head_dim;
    const inputs = {
      q: stream(c.seed, 0, wide),
      k: stream(c.seed, 1, narrow),
      v: stream(c.seed, 2, narrow),
      sink: stream(c.seed, 4, c.heads).map((x) => x + 1),
      heads: c.heads,
      kvHeads: c.kv_heads,
      headDim: c.head_dim,
      cuSeqlens: Int32Array.from(c.cu_seqlens),
      window: c.window,
      prefix: c.prefix,
      scale: c.scale,
      threads: 2,
    };
    const { out, lse } = sinkAttention(inputs);
    const gradients = sinkAttentionBackward({ ...inputs, out, lse, dout: stream(c.seed, 3, wide) });
    const rows = integers(expected.get('rows')!.data);
    for (const [name, data] of Object.entries({ out, lse_sink: lse, ...gradients })) {
      const wanted = expected.get(name)!;
      const width = name === 'dsink' ? c.heads : data.length / c.n;
      const ours =
        name === 'dsink' ? data : Float32Array.from([...rows].flatMap((row) => [...data.subarray(row * width, (row + 1) * width)]));
      const error = relativeError(ours, wanted.data);
      t.ok(error <= (name === 'out' || name === 'lse_sink' ? 1e-5 : 1e-4), `${c.file} ${name}: ${error.toExponential(1)}`);
      const print = c.fingerprint[name];
      if (print) {
        const [norm, sum] = fingerprint(data);
        t.ok(
          Math.abs(norm - print[0]) <= 1e-4 * print[0] && Math.abs(sum - print[1]) <= 1e-4 * print[0] + 1e-3,
          `${c.file} ${name} as a whole`,
        );
      }
    }
  }
  t.end();
});
