// config.json of a Hugging Face checkpoint -> a checked ModelConfig. Anything that the engine would compute differently from transformers
// is refused by name instead of being ignored.
import { SinkflexError } from './errors.ts';

export type LayerType = 'sliding_attention' | 'full_attention';

/** Absent: plain rotary embeddings (rope_type 'default'). */
export interface RopeScaling {
  rope_type: 'yarn';
  factor?: number;
  beta_fast?: number;
  beta_slow?: number;
  /** Whether the correction range is floored and ceiled (transformers' default: true; gpt-oss: false). */
  truncate?: boolean;
  original_max_position_embeddings?: number;
  /** Multiplies cosine and sine; default 0.1 ln(factor) + 1. */
  attention_factor?: number;
}

/** The keys of config.json that matter, under Hugging Face's names. */
export interface ModelConfig {
  model_type: 'gpt_oss';
  vocab_size: number;
  hidden_size: number;
  intermediate_size: number;
  num_hidden_layers: number;
  num_attention_heads: number;
  num_key_value_heads: number;
  head_dim: number;
  num_local_experts: number;
  num_experts_per_tok: number;
  sliding_window: number;
  layer_types: LayerType[];
  rms_norm_eps: number;
  rope_theta: number;
  rope_scaling?: RopeScaling;
  swiglu_limit: number;
  tie_word_embeddings: boolean;
  max_position_embeddings: number;
  attention_bias: boolean;
  initializer_range: number;
  eos_token_id?: number | number[];
  pad_token_id?: number;
  bos_token_id?: number;
}

type Json = Record<string, unknown>;

function invalid(key: string, expected: string, value: unknown): SinkflexError {
  const shown = value === undefined ? 'it is missing' : `it is ${JSON.stringify(value)}`;
  return new SinkflexError('SINKFLEX_CONFIG_INVALID', `config.json: ${key} must be ${expected}, ${shown}`, { details: { key } });
}

function unsupported(key: string, value: unknown, supported: string): SinkflexError {
  return new SinkflexError(
    'SINKFLEX_CONFIG_UNSUPPORTED',
    `config.json: ${key} = ${JSON.stringify(value)} is not supported (${supported})`,
    {
      details: { key, value },
    },
  );
}

function object(value: unknown, key: string): Json {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw invalid(key, 'an object', value);
  return value as Json;
}

function integer(from: Json, key: string, low: number, fallback?: number): number {
  const value = from[key] ?? fallback;
  if (typeof value !== 'number' || !Number.isInteger(value) || value < low || value > 2 ** 31 - 1)
    throw invalid(key, `an integer from ${low} up`, value);
  return value;
}

function positive(from: Json, key: string, fallback?: number): number {
  const value = from[key] ?? fallback;
  if (typeof value !== 'number' || !Number.isFinite(value) || value <= 0) throw invalid(key, 'a positive number', value);
  return value;
}

function boolean(from: Json, key: string, fallback: boolean): boolean {
  const value = from[key] ?? fallback;
  if (typeof value !== 'boolean') throw invalid(key, 'true or false', value);
  return value;
}

const ropeKeys = new Set([
  'rope_type',
  'type',
  'rope_theta',
  'factor',
  'beta_fast',
  'beta_slow',
  'truncate',
  'original_max_position_embeddings',
  'attention_factor',
  'partial_rotary_factor',
  'finetuned',
]);

function parseRope(from: Json, key: string): RopeScaling | undefined {
  for (const [name, value] of Object.entries(from)) {
    if (!ropeKeys.has(name)) throw unsupported(`${key}.${name}`, value, `known are ${[...ropeKeys].join(', ')}`);
  }
  if ((from.partial_rotary_factor ?? 1) !== 1) throw unsupported(`${key}.partial_rotary_factor`, from.partial_rotary_factor, 'only 1');
  const type = from.rope_type ?? from.type ?? 'default';
  if (type === 'default') return undefined;
  if (type !== 'yarn') throw unsupported(`${key}.rope_type`, type, 'default and yarn are');
  const rope: RopeScaling = {
    rope_type: 'yarn',
    beta_fast: positive(from, 'beta_fast', 32),
    beta_slow: positive(from, 'beta_slow', 1),
    truncate: boolean(from, 'truncate', true),
    factor: positive(from, 'factor'),
  };
  if (from.original_max_position_embeddings != null) {
    rope.original_max_position_embeddings = integer(from, 'original_max_position_embeddings', 1);
  }
  if (from.attention_factor != null) rope.attention_factor = positive(from, 'attention_factor');
  return rope;
}

/** Both dialects: rope_theta + rope_scaling of the hub, and rope_parameters of transformers 5. */
function parseRopeOf(config: Json): { theta: number; scaling: RopeScaling | undefined } {
  if (config.rope_parameters != null) {
    const rope = object(config.rope_parameters, 'rope_parameters');
    const theta = positive(rope, 'rope_theta', typeof config.rope_theta === 'number' ? config.rope_theta : undefined);
    return { theta, scaling: parseRope(rope, 'rope_parameters') };
  }
  const theta = positive(config, 'rope_theta');
  if (config.rope_scaling == null) return { theta, scaling: undefined };
  return { theta, scaling: parseRope(object(config.rope_scaling, 'rope_scaling'), 'rope_scaling') };
}

function parseLayerTypes(value: unknown, layers: number): LayerType[] {
  if (value == null) return Array.from({ length: layers }, (_, i) => (i % 2 === 0 ? 'sliding_attention' : 'full_attention'));
  if (!Array.isArray(value) || value.length !== layers) throw invalid('layer_types', `a list of ${layers} entries, one a layer`, value);
  return value.map((type: unknown, i) => {
    if (type !== 'sliding_attention' && type !== 'full_attention') {
      throw unsupported(`layer_types[${i}]`, type, 'sliding_attention and full_attention are');
    }
    return type;
  });
}

/** Checks a parsed config.json. SINKFLEX_CONFIG_INVALID or SINKFLEX_CONFIG_UNSUPPORTED name the key. */
export function parseModelConfig(json: unknown): ModelConfig {
  const c = object(json, '(root)');
  if (c.model_type !== 'gpt_oss') throw unsupported('model_type', c.model_type, 'gpt_oss is');
  if (c.quantization_config != null)
    throw unsupported('quantization_config', c.quantization_config, 'unquantised F32, BF16 and F16 weights are');
  if ((c.hidden_act ?? 'silu') !== 'silu') throw unsupported('hidden_act', c.hidden_act, 'silu is');
  if ((c.attention_dropout ?? 0) !== 0) throw unsupported('attention_dropout', c.attention_dropout, '0 is');
  const layers = integer(c, 'num_hidden_layers', 1);
  const { theta, scaling } = parseRopeOf(c);
  const config: ModelConfig = {
    model_type: 'gpt_oss',
    vocab_size: integer(c, 'vocab_size', 2),
    hidden_size: integer(c, 'hidden_size', 1),
    intermediate_size: integer(c, 'intermediate_size', 1),
    num_hidden_layers: layers,
    num_attention_heads: integer(c, 'num_attention_heads', 1),
    num_key_value_heads: integer(c, 'num_key_value_heads', 1),
    head_dim: integer(c, 'head_dim', 2),
    num_local_experts: integer(c, 'num_local_experts', 1),
    num_experts_per_tok: integer(
      c,
      c.num_experts_per_tok == null && c.experts_per_token != null ? 'experts_per_token' : 'num_experts_per_tok',
      1,
    ),
    sliding_window: integer(c, 'sliding_window', 1),
    layer_types: parseLayerTypes(c.layer_types, layers),
    rms_norm_eps: positive(c, 'rms_norm_eps'),
    rope_theta: theta,
    ...(scaling ? { rope_scaling: scaling } : {}),
    swiglu_limit: positive(c, 'swiglu_limit', 7),
    tie_word_embeddings: boolean(c, 'tie_word_embeddings', false),
    max_position_embeddings: integer(c, 'max_position_embeddings', 1, 131072),
    attention_bias: boolean(c, 'attention_bias', true),
    initializer_range: positive(c, 'initializer_range', 0.02),
  };
  const { num_attention_heads: heads, num_key_value_heads: kvHeads } = config;
  if (heads % kvHeads !== 0) throw invalid('num_attention_heads', `a multiple of num_key_value_heads (${kvHeads})`, heads);
  if (config.head_dim % 2 !== 0) throw invalid('head_dim', 'even', config.head_dim);
  if (config.num_experts_per_tok > config.num_local_experts) {
    throw invalid('num_experts_per_tok', `at most num_local_experts (${config.num_local_experts})`, config.num_experts_per_tok);
  }
  if (config.num_experts_per_tok > 16) throw unsupported('num_experts_per_tok', config.num_experts_per_tok, 'up to 16 are');
  if (c.eos_token_id != null) {
    const ids: unknown[] = Array.isArray(c.eos_token_id) ? c.eos_token_id : [c.eos_token_id];
    if (!ids.every((id): id is number => Number.isInteger(id)))
      throw invalid('eos_token_id', 'a token id or a list of them', c.eos_token_id);
    config.eos_token_id = Array.isArray(c.eos_token_id) ? ids : ids[0]!;
  }
  if (c.pad_token_id != null) config.pad_token_id = integer(c, 'pad_token_id', 0);
  if (c.bos_token_id != null) config.bos_token_id = integer(c, 'bos_token_id', 0);
  return config;
}

/** config.json for a folder that transformers opens: the hub's dialect and that of transformers 5 side by side. */
export function toHuggingFace(config: ModelConfig): Json {
  const rope = config.rope_scaling ?? { rope_type: 'default' };
  return {
    architectures: ['GptOssForCausalLM'],
    ...config,
    experts_per_token: config.num_experts_per_tok,
    hidden_act: 'silu',
    attention_dropout: 0,
    rope_scaling: config.rope_scaling ?? null,
    rope_parameters: { ...rope, rope_theta: config.rope_theta },
    torch_dtype: 'float32',
  };
}

/** What the native engine takes: numbers only, every default filled in. */
export function toNative(config: ModelConfig): Json {
  const rope: Partial<RopeScaling> = config.rope_scaling ?? {};
  const factor = rope.factor ?? 1;
  return {
    vocab: config.vocab_size,
    hidden: config.hidden_size,
    intermediate: config.intermediate_size,
    layers: config.num_hidden_layers,
    heads: config.num_attention_heads,
    kvHeads: config.num_key_value_heads,
    headDim: config.head_dim,
    experts: config.num_local_experts,
    topK: config.num_experts_per_tok,
    eps: config.rms_norm_eps,
    swigluLimit: config.swiglu_limit,
    tied: config.tie_word_embeddings,
    attentionBias: config.attention_bias,
    // Hugging Face's sliding_window W lets a query see W keys: q - k <= W - 1.
    windows: Float64Array.from(config.layer_types, (type) => (type === 'sliding_attention' ? config.sliding_window - 1 : -1)),
    rope: {
      theta: config.rope_theta,
      yarn: rope.rope_type === 'yarn',
      factor,
      betaFast: rope.beta_fast ?? 32,
      betaSlow: rope.beta_slow ?? 1,
      originalPositions: rope.original_max_position_embeddings ?? config.max_position_embeddings,
      attentionFactor: rope.rope_type === 'yarn' ? (rope.attention_factor ?? (factor > 1 ? 0.1 * Math.log(factor) + 1 : 1)) : 1,
      truncate: rope.truncate ?? true,
    },
  };
}
