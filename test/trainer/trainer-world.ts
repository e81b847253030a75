// A tiny model, a recipe, and a batch that the engine itself sampled: shared by the tests of the trainer.
import type { Recipe } from '../../actors/trainer/index.ts';
import { type PackedTrajectories, pack, type Trajectory } from '../../actors/trajectory/index.ts';
import { Engine, parseModelConfig, type StoreOptions, WeightStore } from '../../kernels/index.ts';

export const model = parseModelConfig({
  model_type: 'gpt_oss',
  vocab_size: 48,
  hidden_size: 32,
  intermediate_size: 32,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 8,
  num_local_experts: 2,
  num_experts_per_tok: 1,
  sliding_window: 8,
  layer_types: ['sliding_attention', 'full_attention'],
  rms_norm_eps: 1e-5,
  rope_theta: 10000,
  swiglu_limit: 7,
  tie_word_embeddings: false,
  max_position_embeddings: 64,
  attention_bias: true,
});

export const recipe: Recipe = {
  advantage: { estimator: 'grpo', normalizeByStd: true, std: 'sample' },
  loss: { mode: 'vanilla', clipLow: 0.2, clipHigh: 0.28, dualClip: 3, aggregation: 'token-mean', horizon: 64 },
  shaping: { overlong: null, kl: null, maskTruncated: false },
  kl: { coefficient: 0, estimator: 'k3' },
  entropyCoefficient: 0,
  correction: { mode: 'token', threshold: 2 },
  oldIsBehaviour: false,
  epochs: 1,
  miniBatchPrompts: null,
  microBatchTokens: 8192,
  optimizer: { gradClip: 1, weightDecay: 0, betas: [0.9, 0.999], eps: 1e-8 },
  temperature: 0.7,
};

export function newStore(t: { teardown: (f: () => void) => unknown }, o: StoreOptions = {}): WeightStore {
  const store = WeightStore.create(model, o);
  store.initialise(5);
  t.teardown(() => store.close());
  return store;
}

/** Six groups of three, sampled by the engine itself; group 2 has no spread, and one response is a single token. */
export async function sample(store: WeightStore): Promise<PackedTrajectories> {
  const engine = new Engine({ store, threads: 1, maxSequences: 18, maxSequenceTokens: 64 });
  const trajectories = await Promise.all(
    Array.from({ length: 18 }, async (_, i): Promise<Trajectory> => {
      const [task, sample] = [Math.floor(i / 3), i % 3];
      const prompt = Int32Array.from({ length: 3 + task }, (_, k) => (7 * task + k) % 48);
      const s = await engine.openSequence();
      const r = await engine.generate(s, {
        tokens: prompt,
        maxNewTokens: i === 4 ? 1 : 6 + sample,
        stopTokens: [],
        temperature: recipe.temperature,
        key: [1, task, sample, 0],
      });
      engine.closeSequence(s);
      const whole = <A extends Int32Array | Float32Array>(make: new (n: number) => A, filler: number, tail: A): A => {
        const out = new make(prompt.length + tail.length).fill(filler) as A;
        out.set(tail, prompt.length);
        return out;
      };
      const ids = whole(Int32Array, 0, r.tokens);
      ids.set(prompt);
      return {
        task,
        sample,
        group: `t${task}`,
        seed: 0,
        ids,
        mask: Uint8Array.from(ids, (_, k) => (k < prompt.length ? 0 : 1)),
        logprobs: whole(Float32Array, 0, r.logprobs),
        versions: whole(Int32Array, -1, r.versions),
        lineage: 0,
        reward: task === 2 ? 1 : (i * 5) % 7 < 3 ? 1 : 0,
        rewardParts: {},
        stopReason: 'stop',
        turns: 1,
        toolCalls: 0,
        malformed: 0,
        redone: 0,
        seconds: { total: 0, generate: 0, environment: 0 },
      };
    }),
  );
  await engine.dispose();
  return pack(trajectories);
}

/** Every parameter of the current version. */
export function weightsOf(store: WeightStore): Float32Array {
  const pin = store.pin();
  const all = Float32Array.from([...store.tensors(pin).values()].flatMap(({ data }) => [...data]));
  pin.release();
  return all;
}
