// Training: gradients against finite differences and against every way to split a batch, the optimiser, and continuing from files.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { Engine, readModelConfig, WeightStore as Store, type WeightStore } from '../../kernels/index.ts';
import { createStore, denseModels, maxDifference, relativeError, temporaryFolder } from './engine-support.ts';

interface Batch {
  ids: Int32Array;
  cuSeqlens: Int32Array;
}

/** Deterministic noise in [-1, 1). */
function noise(i: number, salt: number): number {
  const x = Math.imul(Math.imul(i + 1, 0x9e3779b1) ^ (salt * 0x85ebca6b), 0xc2b2ae35);
  return ((x ^ (x >>> 15)) >>> 0) / 2 ** 31 - 1;
}

function packed(lengths: number[], vocab = 67): Batch {
  const cuSeqlens = Int32Array.from([0, ...lengths.map((_, i) => lengths.slice(0, i + 1).reduce((a, b) => a + b, 0))]);
  const ids = Int32Array.from({ length: cuSeqlens.at(-1)! }, (_, i) => Math.floor(((noise(i, 3) + 1) / 2) * vocab));
  return { ids, cuSeqlens };
}

async function publishChanged(
  store: WeightStore,
  version: number,
  from: Uint8Array,
  change: (tensors: Map<string, Float32Array>) => void,
): Promise<void> {
  const writing = await store.segment.beginWrite();
  writing.data.set(from);
  const { buffer, byteOffset } = writing.data;
  change(
    new Map(store.layout.tensors.map((x) => [x.name, new Float32Array(buffer, byteOffset + store.layout.dataStart + x.offset, x.count)])),
  );
  writing.publish({ lineage: 0, version });
}

t.test('finite differences of the whole model', async (t) => {
  for (const [title, over] of [
    ['untied, both windows', {}],
    ['tied, no biases, top-1', { tie_word_embeddings: true, attention_bias: false, num_experts_per_tok: 1 }],
    [
      'all experts chosen, clamp in reach',
      {
        num_experts_per_tok: 3,
        swiglu_limit: 0.5,
        rope_scaling: { rope_type: 'yarn', factor: 4, truncate: false, original_max_position_embeddings: 16 },
      },
    ],
    ...Object.entries(denseModels),
  ] as const) {
    await t.test(title, async (t) => {
      const store = createStore(over, 5);
      const engine = new Engine({ store });
      t.teardown(() => engine.dispose());
      const batch = packed([13, 1, 22]);
      const n = batch.ids.length;
      const dLogprobs = Float32Array.from({ length: n }, (_, i) => noise(i, 1));
      const dEntropy = Float32Array.from({ length: n }, (_, i) => noise(i, 2));
      const dRouterAuxLoss = store.config.num_local_experts > 0 ? 20 : 0;
      const loss = async (): Promise<number> => {
        const { logprobs, entropy, routerAuxLoss } = await engine.forward(batch, { temperature: 0.8 });
        const tokens = logprobs.reduce((sum, lp, i) => sum + lp * dLogprobs[i]! + entropy[i]! * dEntropy[i]!, 0);
        return tokens + routerAuxLoss * dRouterAuxLoss;
      };
      await engine.forward(batch, { temperature: 0.8, keep: true });
      await engine.backward({ dLogprobs, dEntropy, dRouterAuxLoss });
      const gradients = engine.gradients();
      const pin = store.pin();
      const base = pin.data.slice();
      pin.release();
      let version = 0;
      for (const [name, gradient] of gradients) {
        const norm = Math.sqrt(gradient.reduce((sum, g) => sum + g * g, 0));
        // Half along the gradient, half anywhere: a derivative as large as the noise of float32 allows, that still sees other directions.
        const direction = gradient.map((g, i) => g / (norm || 1) + noise(i, 9) / Math.sqrt(gradient.length));
        const expected = gradient.reduce((sum, g, i) => sum + g * direction[i]!, 0);
        const at = async (step: number): Promise<number> => {
          await publishChanged(store, ++version, base, (tensors) => {
            const x = tensors.get(name)!;
            for (let i = 0; i < x.length; i++) x[i]! += step * direction[i]!;
          });
          return loss();
        };
        // Two step sizes: the smaller is right unless it drowns in rounding, the larger unless a route or a clamp changes on the way.
        const errors: number[] = [];
        for (const step of [2e-3, 4e-4]) errors.push(Math.abs((await at(step)) - (await at(-step)) - 2 * step * expected) / (2 * step));
        t.ok(
          Math.min(...errors) <= 0.005 * Math.abs(expected) + 0.003,
          `${name}: ${expected.toFixed(4)}, off by ${Math.min(...errors).toExponential(1)}`,
        );
      }
    });
  }
});

t.test('gradients do not depend on how a batch is split, nor on threads', async (t) => {
  for (const over of [
    {},
    { tie_word_embeddings: true, num_local_experts: 5, head_dim: 16, hidden_size: 48 },
    denseModels.llama,
    denseModels.qwen3,
  ]) {
    const store = createStore(over, 6);
    const whole = packed([40, 1, 33, 5, 64, 70]);
    const weight = (i: number): number => noise(i, 4);
    const run = async (threads: number, splits: number[][]): Promise<Map<string, Float32Array>> => {
      const engine = new Engine({ store, threads });
      for (const [from, to] of splits as [number, number][]) {
        const [a, b] = [whole.cuSeqlens[from]!, whole.cuSeqlens[to]!];
        const part = { ids: whole.ids.slice(a, b), cuSeqlens: whole.cuSeqlens.slice(from, to + 1).map((c) => c - a) };
        await engine.forward(part, { keep: true });
        const dLogprobs = Float32Array.from({ length: b - a }, (_, i) => weight(a + i));
        await engine.backward({ dLogprobs, dEntropy: dLogprobs.map((x) => x / 3) });
      }
      const gradients = engine.gradients();
      await engine.dispose();
      return gradients;
    };
    const one = await run(1, [[0, 6]]);
    for (const [threads, splits] of [
      [2, [[0, 6]]],
      [
        1,
        [
          [0, 3],
          [3, 6],
        ],
      ],
      [
        2,
        [
          [0, 1],
          [1, 2],
          [2, 3],
          [3, 4],
          [4, 5],
          [5, 6],
        ],
      ],
      [
        3,
        [
          [0, 5],
          [5, 6],
        ],
      ],
    ] as [number, number[][]][]) {
      const other = await run(threads, splits);
      const unequal = [...one].filter(([name, gradient]) =>
        Buffer.compare(Buffer.from(gradient.buffer), Buffer.from(other.get(name)!.buffer)),
      );
      t.same(
        unequal.map(([name]) => name),
        [],
        `${threads} threads, ${splits.length} parts`,
      );
    }
  }
});

t.test('a mask leaves out what nobody asks for, and nothing else changes', async (t) => {
  const store = createStore();
  const engine = new Engine({ store });
  t.teardown(() => engine.dispose());
  const batch = packed([20, 9]);
  const all = await engine.forward(batch);
  const mask = Uint8Array.from(batch.ids, (_, i) => (i % 3 === 0 ? 1 : 0));
  const some = await engine.forward(batch, { mask });
  t.same(
    [...some.logprobs],
    [...all.logprobs].map((x, i) => (mask[i] ? x : 0)),
  );
  t.same(
    [...some.entropy],
    [...all.entropy].map((x, i) => (mask[i] ? x : 0)),
  );
});

t.test('activations are reused, and grow linearly with the tokens', async (t) => {
  const engine = new Engine({ store: createStore({ vocab_size: 4000 }) });
  t.teardown(() => engine.dispose());
  const bytes = async (lengths: number[], keep: boolean): Promise<number> => {
    await engine.forward(packed(lengths), { keep });
    return engine.stats().activationBytes;
  };
  const streaming = await bytes([1000], false);
  const one = await bytes([1000], true);
  t.ok(one > streaming, 'a kept forward holds every layer');
  t.equal(await bytes([500, 500], true), one);
  t.equal(await bytes([100], true), one, 'the arena stays');
  const four = await bytes([1000, 1000, 1000, 1000], true);
  t.ok(four < 4.1 * one, `${one} -> ${four} bytes`);
  t.ok(one < 1000 * 4000 * 4, 'no [n, V] logits');
});

t.test('steps: the loss falls, the norm is clipped, decay spares norms and biases, versions are flips', async (t) => {
  const store = createStore({ initializer_range: 0.02 }, 7);
  const engine = new Engine({ store, threads: 2 });
  t.teardown(() => engine.dispose());
  const batch = packed([30, 30]);
  const losses: number[] = [];
  for (let step = 1; step <= 40; step++) {
    const { logprobs, version } = await engine.forward(batch, { keep: true });
    t.equal(version, step - 1);
    losses.push(-logprobs.reduce((a, b) => a + b, 0) / 58);
    await engine.backward({ dLogprobs: new Float32Array(60).fill(-1 / 58) });
    const { gradNorm } = await engine.optimizerStep({ lr: 1e-2, maxGradNorm: 1, weightDecay: 0.01, lineage: 0, version: step });
    t.ok(Number.isFinite(gradNorm) && gradNorm > 0);
  }
  t.ok(losses.at(-1)! < 0.3 * losses[0]!, `${losses[0]} -> ${losses.at(-1)}`);
  // Without gradients only decay moves anything (the moments decay too, so the engine is fresh).
  const still = new Engine({ store });
  t.teardown(() => still.dispose());
  const before = new Map([...withPin(store)].map(([name, x]) => [name, x.slice()]));
  await still.optimizerStep({ lr: 0.1, weightDecay: 0.5, lineage: 0, version: 41 });
  for (const x of store.layout.tensors) {
    const after = withPin(store).get(x.name)!;
    const wanted = before.get(x.name)!.map((p) => (x.decay ? p * (1 - 0.1 * 0.5) : p));
    t.ok(maxDifference(after, wanted) <= 1e-7, `${x.name} ${x.decay ? 'decays' : 'stays'}`);
  }
  await t.rejects(still.optimizerStep({ lr: 0.1, lineage: 0, version: 41 }), { code: 'SINKFLEX_STORE_ORDER' });
  t.equal(store.current()?.version, 41);
});

function withPin(store: WeightStore): Map<string, Float32Array> {
  const pin = store.pin();
  const copies = new Map([...store.tensors(pin)].map(([name, x]) => [name, x.data.slice()]));
  pin.release();
  return copies;
}

t.test('AdamW is the published formula', async (t) => {
  const store = createStore({}, 8);
  const engine = new Engine({ store });
  t.teardown(() => engine.dispose());
  const batch = packed([25]);
  const reference = new Map(
    [...withPin(store)].map(([name, p]) => [
      name,
      { p: Float64Array.from(p), m: new Float64Array(p.length), v: new Float64Array(p.length) },
    ]),
  );
  const o = { lr: 3e-3, beta1: 0.8, beta2: 0.95, eps: 1e-6, weightDecay: 0.1, maxGradNorm: 0.5 };
  for (let step = 1; step <= 3; step++) {
    await engine.forward(batch, { keep: true });
    await engine.backward({ dLogprobs: new Float32Array(25).fill(-1) });
    const gradients = engine.gradients();
    const { gradNorm } = await engine.optimizerStep({ ...o, lineage: 0, version: step });
    const norm = Math.sqrt([...gradients.values()].reduce((sum, g) => sum + g.reduce((s, x) => s + x * x, 0), 0));
    t.ok(Math.abs(gradNorm - norm) <= 1e-6 * norm, 'norm');
    const scale = Math.min(1, o.maxGradNorm / (norm + 1e-6));
    for (const x of store.layout.tensors) {
      const { p, m, v } = reference.get(x.name)!;
      for (let i = 0; i < p.length; i++) {
        const g = gradients.get(x.name)![i]! * scale;
        m[i] = o.beta1 * m[i]! + (1 - o.beta1) * g;
        v[i] = o.beta2 * v[i]! + (1 - o.beta2) * g * g;
        const update = m[i]! / (1 - o.beta1 ** step) / (Math.sqrt(v[i]! / (1 - o.beta2 ** step)) + o.eps);
        p[i] = p[i]! * (1 - (x.decay ? o.lr * o.weightDecay : 0)) - o.lr * update;
      }
    }
  }
  for (const [name, p] of withPin(store)) t.ok(relativeError(p, reference.get(name)!.p) <= 1e-5, name);
});

t.test('gradients that are not finite change nothing', async (t) => {
  const store = createStore();
  const engine = new Engine({ store });
  t.teardown(() => engine.dispose());
  await engine.forward(packed([12]), { keep: true });
  await engine.backward({ dLogprobs: new Float32Array(12).fill(Number.NaN) });
  await t.rejects(engine.optimizerStep({ lr: 1, lineage: 0, version: 1 }), { code: 'SINKFLEX_ENGINE_NOT_FINITE' });
  t.equal(store.current()?.version, 0);
  engine.zeroGradients();
  await engine.optimizerStep({ lr: 1, lineage: 0, version: 1 });
  t.equal(store.current()?.version, 1);
});

t.test('weights and moments from files continue bit for bit', async (t) => {
  const folder = temporaryFolder(t);
  const batch = packed([31, 8]);
  const train = async (engine: Engine, from: number, to: number): Promise<void> => {
    for (let step = from; step < to; step++) {
      await engine.forward(batch, { keep: true });
      await engine.backward({ dLogprobs: new Float32Array(39).fill(-0.1) });
      await engine.optimizerStep({ lr: 1e-2, weightDecay: 0.01, lineage: 0, version: step });
    }
  };
  const store = createStore({ vocab_size: 71 }, 9); // sizes that are no multiple of 16
  const engine = new Engine({ store });
  await train(engine, 1, 4);
  store.saveFolder(folder);
  await engine.saveOptimizer(join(folder, 'optimizer.safetensors'));
  await train(engine, 4, 7);

  const again = Store.create(readModelConfig(folder));
  again.loadFolder(folder, { lineage: 0, version: 3 });
  const engine2 = new Engine({ store: again, threads: 2 });
  await engine2.loadOptimizer(join(folder, 'optimizer.safetensors'));
  await train(engine2, 4, 7);
  for (const [name, data] of withPin(store)) {
    t.equal(Buffer.compare(Buffer.from(data.buffer), Buffer.from(withPin(again).get(name)!.buffer)), 0, name);
  }
  const bytes = readFileSync(join(folder, 'optimizer.safetensors'));
  writeFileSync(join(folder, 'short.safetensors'), bytes.subarray(0, bytes.length - 100));
  await t.rejects(engine2.loadOptimizer(join(folder, 'short.safetensors')), { code: 'SINKFLEX_CHECKPOINT_CORRUPT' });
  await t.rejects(engine2.loadOptimizer(join(folder, 'model.safetensors')), { code: 'SINKFLEX_CHECKPOINT_TENSOR' });
  await t.rejects(engine2.loadOptimizer(join(folder, 'none')), { code: 'SINKFLEX_CHECKPOINT_MISSING' });
  await t.rejects(engine2.saveOptimizer(join(folder, 'no', 'where')), { code: 'SINKFLEX_OS_FAILED' });
  await Promise.all([engine.dispose(), engine2.dispose()]);
});
