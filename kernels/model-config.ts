// config.json of a Hugging Face checkpoint -> a checked ModelConfig. Anything that the engine would compute differently from transformers
// is refused by name instead of being ignored.
import { SinkflexError, shown } from './errors.ts';

export type LayerType = 'sliding_attention' | 'full_attention';

/** Absent: plain rotary embeddings (rope_type 'default'). */
export type RopeScaling = YarnScaling | Llama3Scaling;

export interface YarnScaling {
  rope_type: 'yarn';
  factor: number;
  beta_fast: number;
  beta_slow: number;
  /** Whether the correction range is floored and ceiled (transformers' default: true; gpt-oss: false). */
  truncate: boolean;
  original_max_position_embeddings?: number;
  /** Multiplies cosine and sine; default 0.1 ln(factor) + 1. */
  attention_factor?: number;
}

export interface Llama3Scaling {
  rope_type: 'llama3';
  factor: number;
  low_freq_factor: number;
  high_freq_factor: number;
  original_max_position_embeddings: number;
}

export const modelTypes = ['gpt_oss', 'llama', 'qwen2', 'qwen3'] as const;
export type ModelType = (typeof modelTypes)[number];

/** The keys of config.json that matter, under Hugging Face's names. */
export interface ModelConfig {
  model_type: ModelType;
  vocab_size: number;
  hidden_size: number;
  intermediate_size: number;
  num_hidden_layers: number;
  num_attention_heads: number;
  num_key_value_heads: number;
  head_dim: number;
  /** gpt_oss; 0 in a dense model. */
  num_local_experts: number;
  /** gpt_oss; 0 in a dense model. */
  num_experts_per_tok: number;
  /** Keys that a query of a sliding layer sees; undefined: no layer slides. */
  sliding_window?: number;
  /** qwen: true exactly when there is a sliding_window. */
  use_sliding_window?: boolean;
  layer_types: LayerType[];
  rms_norm_eps: number;
  rope_theta: number;
  rope_scaling?: RopeScaling;
  /** gpt_oss. */
  swiglu_limit?: number;
  tie_word_embeddings: boolean;
  max_position_embeddings: number;
  /** Biases of q, k, v and o (qwen2: of q, k and v). */
  attention_bias: boolean;
  /** llama: biases of gate, up and down. */
  mlp_bias: boolean;
  initializer_range: number;
  eos_token_id?: number | number[];
  pad_token_id?: number;
  bos_token_id?: number;
}

/** Far above any model: lists of layers are made before anything else can tell that a number is absurd. */
const mostLayers = 4096;

type Json = Record<string, unknown>;

function invalid(key: string, expected: string, value: unknown): SinkflexError {
  const found = value === undefined ? 'it is missing' : `it is ${shown(value)}`;
  return new SinkflexError('SINKFLEX_CONFIG_INVALID', `config.json: ${key} must be ${expected}, ${found}`, { details: { key } });
}

function unsupported(key: string, value: unknown, supported: string): SinkflexError {
  return new SinkflexError('SINKFLEX_CONFIG_UNSUPPORTED', `config.json: ${key} = ${shown(value)} is not supported (${supported})`, {
    details: { key, value },
  });
}

function object(value: unknown, key: string): Json {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw invalid(key, 'an object', value);
  return value as Json;
}

function integer(from: Json, key: string, low: number, fallback?: number, high = 2 ** 31 - 1): number {
  const value = from[key] ?? fallback;
  if (typeof value !== 'number' || !Number.isInteger(value) || value < low || value > high)
    throw invalid(key, high < 2 ** 31 - 1 ? `an integer from ${low} to ${high}` : `an integer from ${low} up`, value);
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

const ropeKeys: Record<'default' | RopeScaling['rope_type'], readonly string[]> = {
  default: [],
  yarn: ['factor', 'beta_fast', 'beta_slow', 'truncate', 'original_max_position_embeddings', 'attention_factor'],
  llama3: ['factor', 'low_freq_factor', 'high_freq_factor', 'original_max_position_embeddings'],
};
const commonRopeKeys = ['rope_type', 'type', 'rope_theta', 'partial_rotary_factor', 'finetuned'];

function parseRope(from: Json, key: string): RopeScaling | undefined {
  const type = from.rope_type ?? from.type ?? 'default';
  if (type !== 'default' && type !== 'yarn' && type !== 'llama3')
    throw unsupported(`${key}.rope_type`, type, 'default, yarn and llama3 are');
  const known = [...commonRopeKeys, ...ropeKeys[type]];
  for (const [name, value] of Object.entries(from)) {
    if (!known.includes(name)) throw unsupported(`${key}.${name}`, value, `for ${type}, known are ${known.join(', ')}`);
  }
  if ((from.partial_rotary_factor ?? 1) !== 1) throw unsupported(`${key}.partial_rotary_factor`, from.partial_rotary_factor, 'only 1');
  if (type === 'default') return undefined;
  const original = 'original_max_position_embeddings';
  if (type === 'llama3') {
    const rope: Llama3Scaling = {
      rope_type: type,
      factor: positive(from, 'factor'),
      low_freq_factor: positive(from, 'low_freq_factor'),
      high_freq_factor: positive(from, 'high_freq_factor'),
      [original]: integer(from, original, 1),
    };
    if (rope.high_freq_factor <= rope.low_freq_factor)
      throw invalid(`${key}.high_freq_factor`, `above low_freq_factor (${rope.low_freq_factor})`, rope.high_freq_factor);
    return rope;
  }
  return {
    rope_type: type,
    beta_fast: positive(from, 'beta_fast', 32),
    beta_slow: positive(from, 'beta_slow', 1),
    truncate: boolean(from, 'truncate', true),
    factor: positive(from, 'factor'),
    ...(from[original] == null ? {} : { [original]: integer(from, original, 1) }),
    ...(from.attention_factor == null ? {} : { attention_factor: positive(from, 'attention_factor') }),
  };
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

function parseLayerTypes(value: unknown, layers: number, fallback: (layer: number) => LayerType): LayerType[] {
  if (value == null) return Array.from({ length: layers }, (_, i) => fallback(i));
  if (!Array.isArray(value) || value.length !== layers) throw invalid('layer_types', `a list of ${layers} entries, one a layer`, value);
  return value.map((type: unknown, i) => {
    if (type !== 'sliding_attention' && type !== 'full_attention') {
      throw unsupported(`layer_types[${i}]`, type, 'sliding_attention and full_attention are');
    }
    return type;
  });
}

/** What the architectures do not share. */
function parseArchitecture(
  c: Json,
  model_type: ModelType,
  layers: number,
): Pick<
  ModelConfig,
  | 'head_dim'
  | 'num_local_experts'
  | 'num_experts_per_tok'
  | 'sliding_window'
  | 'use_sliding_window'
  | 'layer_types'
  | 'swiglu_limit'
  | 'attention_bias'
  | 'mlp_bias'
> {
  if (model_type === 'gpt_oss') {
    const experts = integer(c, 'num_local_experts', 1);
    const chosenKey = c.num_experts_per_tok == null && c.experts_per_token != null ? 'experts_per_token' : 'num_experts_per_tok';
    const chosen = integer(c, chosenKey, 1);
    if (chosen > experts) throw invalid('num_experts_per_tok', `at most num_local_experts (${experts})`, chosen);
    if (chosen > 16) throw unsupported('num_experts_per_tok', chosen, 'up to 16 are');
    return {
      head_dim: integer(c, 'head_dim', 2),
      num_local_experts: experts,
      num_experts_per_tok: chosen,
      sliding_window: integer(c, 'sliding_window', 1),
      layer_types: parseLayerTypes(c.layer_types, layers, (l) => (l % 2 === 0 ? 'sliding_attention' : 'full_attention')),
      swiglu_limit: positive(c, 'swiglu_limit', 7),
      attention_bias: boolean(c, 'attention_bias', true),
      mlp_bias: false,
    };
  }
  // use_sliding_window rules over sliding_window, which qwen's configurations always carry.
  const slides = model_type !== 'llama' && boolean(c, 'use_sliding_window', false) && c.sliding_window != null;
  const from = slides ? integer(c, 'max_window_layers', 0, 28) : layers;
  const layerTypes = parseLayerTypes(model_type === 'llama' ? undefined : c.layer_types, layers, (l) =>
    l >= from ? 'sliding_attention' : 'full_attention',
  );
  if (!slides && layerTypes.includes('sliding_attention'))
    throw invalid('use_sliding_window', 'true, with a sliding_window, where layer_types names sliding_attention', c.use_sliding_window);
  const hidden = integer(c, 'hidden_size', 1);
  const heads = integer(c, 'num_attention_heads', 1);
  if (c.head_dim == null && model_type !== 'qwen3' && hidden % heads !== 0)
    throw invalid('hidden_size', `a multiple of num_attention_heads (${heads}), since there is no head_dim`, hidden);
  return {
    // Qwen3's default is a number, the others' the share of a head.
    head_dim: integer(c, 'head_dim', 2, model_type === 'qwen3' ? 128 : hidden / heads),
    num_local_experts: 0,
    num_experts_per_tok: 0,
    ...(slides ? { use_sliding_window: true, sliding_window: integer(c, 'sliding_window', 1) } : {}),
    layer_types: layerTypes,
    attention_bias: model_type === 'qwen2' ? true : boolean(c, 'attention_bias', false),
    mlp_bias: model_type === 'llama' ? boolean(c, 'mlp_bias', false) : false,
  };
}

/** Checks a parsed config.json. SINKFLEX_CONFIG_INVALID or SINKFLEX_CONFIG_UNSUPPORTED name the key. */
export function parseModelConfig(json: unknown): ModelConfig {
  const c = object(json, '(root)');
  const model_type = modelTypes.find((type) => type === c.model_type);
  if (model_type === undefined) throw unsupported('model_type', c.model_type, `${modelTypes.join(', ')} are`);
  checkQuantization(c, model_type);
  if ((c.hidden_act ?? 'silu') !== 'silu') throw unsupported('hidden_act', c.hidden_act, 'silu is');
  if ((c.attention_dropout ?? 0) !== 0) throw unsupported('attention_dropout', c.attention_dropout, '0 is');
  const layers = integer(c, 'num_hidden_layers', 1, undefined, mostLayers);
  const heads = integer(c, 'num_attention_heads', 1);
  const { theta, scaling } = parseRopeOf(c);
  const config: ModelConfig = {
    model_type,
    vocab_size: integer(c, 'vocab_size', 2),
    hidden_size: integer(c, 'hidden_size', 1),
    intermediate_size: integer(c, 'intermediate_size', 1),
    num_hidden_layers: layers,
    num_attention_heads: heads,
    num_key_value_heads: integer(c, 'num_key_value_heads', 1, model_type === 'gpt_oss' ? undefined : heads),
    ...parseArchitecture(c, model_type, layers),
    rms_norm_eps: positive(c, 'rms_norm_eps'),
    rope_theta: theta,
    ...(scaling ? { rope_scaling: scaling } : {}),
    tie_word_embeddings: boolean(c, 'tie_word_embeddings', false),
    max_position_embeddings: integer(c, 'max_position_embeddings', 1, 131072),
    initializer_range: positive(c, 'initializer_range', 0.02),
  };
  const kvHeads = config.num_key_value_heads;
  if (heads % kvHeads !== 0) throw invalid('num_attention_heads', `a multiple of num_key_value_heads (${kvHeads})`, heads);
  if (config.head_dim % 2 !== 0) throw invalid('head_dim', 'even', config.head_dim);
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

/** quantization_config of a folder whose experts are in MXFP4, as transformers reads it. */
export const mxfp4Quantization = {
  quant_method: 'mxfp4',
  modules_to_not_convert: ['model.layers.*.self_attn', 'model.layers.*.mlp.router', 'model.embed_tokens', 'lm_head'],
};

/** MXFP4 experts are read; no other quantisation is. */
function checkQuantization(c: Json, model_type: ModelType): void {
  if (c.quantization_config == null) return;
  const { quant_method: method } = object(c.quantization_config, 'quantization_config');
  if (method !== 'mxfp4' || model_type !== 'gpt_oss')
    throw unsupported(
      'quantization_config.quant_method',
      method,
      'mxfp4 experts of gpt_oss are, and unquantised F32, BF16 and F16 weights',
    );
}

const architectures: Record<ModelType, string> = {
  gpt_oss: 'GptOssForCausalLM',
  llama: 'LlamaForCausalLM',
  qwen2: 'Qwen2ForCausalLM',
  qwen3: 'Qwen3ForCausalLM',
};

/** config.json for a folder that transformers opens: the hub's dialect and that of transformers 5 side by side. */
export function toHuggingFace(config: ModelConfig): Json {
  const rope = config.rope_scaling ?? { rope_type: 'default' };
  const { num_local_experts, num_experts_per_tok, swiglu_limit, sliding_window, mlp_bias, attention_bias, ...shared } = config;
  const own: Record<ModelType, Json> = {
    gpt_oss: {
      num_local_experts,
      num_experts_per_tok,
      experts_per_token: num_experts_per_tok,
      swiglu_limit,
      sliding_window,
      attention_bias,
    },
    llama: { attention_bias, mlp_bias },
    qwen2: { ...slidingKeys(config) },
    qwen3: { attention_bias, ...slidingKeys(config) },
  };
  return {
    architectures: [architectures[config.model_type]],
    ...shared,
    ...own[config.model_type],
    hidden_act: 'silu',
    attention_dropout: 0,
    rope_scaling: config.rope_scaling ?? null,
    rope_parameters: { ...rope, rope_theta: config.rope_theta },
    torch_dtype: 'float32',
  };
}

/** Qwen's: the flag rules over the width, and the first sliding layer is named beside layer_types. */
function slidingKeys(config: ModelConfig): Json {
  const first = config.layer_types.indexOf('sliding_attention');
  return {
    use_sliding_window: first >= 0,
    sliding_window: config.sliding_window ?? null,
    max_window_layers: first < 0 ? config.num_hidden_layers : first,
  };
}

/** What the native engine takes: numbers only, every default filled in. */
export function toNative(config: ModelConfig, lora?: { r: number; lora_alpha: number }): Json {
  const scaling = config.rope_scaling;
  const yarn: Partial<YarnScaling> = scaling?.rope_type === 'yarn' ? scaling : {};
  const llama3: Partial<Llama3Scaling> = scaling?.rope_type === 'llama3' ? scaling : {};
  const factor = scaling?.factor ?? 1;
  const window = config.sliding_window;
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
    swigluLimit: config.swiglu_limit ?? 0,
    loraRank: lora?.r ?? 0,
    loraScale: lora === undefined ? 1 : lora.lora_alpha / lora.r,
    tied: config.tie_word_embeddings,
    ...biases(config),
    sinks: config.model_type === 'gpt_oss',
    qkNorm: config.model_type === 'qwen3',
    // Hugging Face's sliding_window W lets a query see W keys: q - k <= W - 1.
    windows: Float64Array.from(config.layer_types, (type) => (type === 'sliding_attention' && window !== undefined ? window - 1 : -1)),
    rope: {
      theta: config.rope_theta,
      kind: scaling?.rope_type ?? 'default',
      factor,
      betaFast: yarn.beta_fast ?? 32,
      betaSlow: yarn.beta_slow ?? 1,
      originalPositions: scaling?.original_max_position_embeddings ?? config.max_position_embeddings,
      attentionFactor: scaling?.rope_type === 'yarn' ? (scaling.attention_factor ?? (factor > 1 ? 0.1 * Math.log(factor) + 1 : 1)) : 1,
      truncate: yarn.truncate ?? true,
      lowFrequency: llama3.low_freq_factor ?? 1,
      highFrequency: llama3.high_freq_factor ?? 4,
    },
  };
}

/** Which projections have biases. */
export function biases(config: ModelConfig): { qkvBias: boolean; oBias: boolean; mlpBias: boolean } {
  return {
    qkvBias: config.attention_bias,
    oBias: config.attention_bias && config.model_type !== 'qwen2',
    mlpBias: config.mlp_bias,
  };
}
