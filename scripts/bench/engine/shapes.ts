// The models of the suite `engine`: shapes with random weights in float32, made once a run and saved as Hugging Face folders, from which
// every rival reads the same numbers.
import { mkdtempSync, rmSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseModelConfig, WeightStore } from '../../../kernels/index.ts';
import type { SuiteContext } from '../rows.ts';

/** Of ours and of every rival. */
export const THREADS = availableParallelism();

const qwen2 = (o: {
  hidden: number;
  layers: number;
  heads: number;
  kvHeads: number;
  intermediate: number;
  vocabulary: number;
}): object => ({
  model_type: 'qwen2',
  vocab_size: o.vocabulary,
  hidden_size: o.hidden,
  intermediate_size: o.intermediate,
  num_hidden_layers: o.layers,
  num_attention_heads: o.heads,
  num_key_value_heads: o.kvHeads,
  rms_norm_eps: 1e-6,
  rope_theta: 1e6,
  tie_word_embeddings: true,
  use_sliding_window: false,
  max_position_embeddings: 4096,
});

export const MODELS = {
  /** 29.6 million parameters. */
  '30m': qwen2({ hidden: 384, layers: 8, heads: 6, kvHeads: 2, intermediate: 1536, vocabulary: 32_000 }),
  /** 128 million. */
  '125m': qwen2({ hidden: 768, layers: 12, heads: 12, kvHeads: 4, intermediate: 3072, vocabulary: 32_000 }),
  /** 10 million, of which a token uses 4. */
  moe: {
    model_type: 'gpt_oss',
    vocab_size: 4096,
    hidden_size: 256,
    intermediate_size: 256,
    num_hidden_layers: 4,
    num_attention_heads: 8,
    num_key_value_heads: 2,
    head_dim: 32,
    num_local_experts: 8,
    num_experts_per_tok: 2,
    sliding_window: 128,
    rms_norm_eps: 1e-5,
    rope_theta: 10_000,
    swiglu_limit: 7,
    tie_word_embeddings: false,
    max_position_embeddings: 4096,
    attention_bias: true,
  },
} as const;
export type ModelName = keyof typeof MODELS;

export interface Model {
  name: ModelName;
  store: WeightStore;
  folder: string;
  parameters: number;
  vocabulary: number;
}

const made = new Map<ModelName, Model>();

/** Made when the first row asks for it; gone after the last row. */
export function modelOf(name: ModelName, context: SuiteContext): Model {
  let model = made.get(name);
  if (model !== undefined) return model;
  context.note(`making ${name}`);
  const store = WeightStore.create(parseModelConfig(MODELS[name]));
  store.initialise(1);
  const folder = mkdtempSync(join(tmpdir(), 'sinkflex-bench-engine-'));
  store.saveFolder(folder);
  model = {
    name,
    store,
    folder,
    parameters: store.layout.tensors.reduce((sum, t) => sum + t.count, 0),
    vocabulary: store.config.vocab_size,
  };
  made.set(name, model);
  context.atEnd(async () => {
    made.delete(name);
    store.close();
    rmSync(folder, { recursive: true, force: true });
  });
  return model;
}

/** Token ids that every rival can make again: 10 + (7919 i + 131 seed) mod (vocabulary - 10), away from the special ones. */
export function tokenIds(count: number, seed: number, vocabulary: number): Int32Array {
  return Int32Array.from({ length: count }, (_, i) => 10 + ((7919 * i + 131 * seed) % (vocabulary - 10)));
}
