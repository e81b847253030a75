// Training: gradients against finite differences and against every way to split a batch.
import t from 'tap';
import { Engine, type WeightStore } from '../../kernels/index.ts';
import { createStore, denseModels, noise, packed } from './engine-support.ts';

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
