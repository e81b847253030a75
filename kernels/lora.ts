// LoRA adapters under PEFT's names: which layers have one, what adapter_config.json says, how fresh ones begin, and their product with the base.
import { SinkflexError } from './errors.ts';
import type { ModelConfig } from './model-config.ts';

export const loraModules = ['q_proj', 'k_proj', 'v_proj', 'o_proj', 'gate_proj', 'up_proj', 'down_proj'] as const;
export type LoraModule = (typeof loraModules)[number];

/** The keys of adapter_config.json that matter, under PEFT's names. */
export interface LoraConfig {
  /** Rank. */
  r: number;
  /** The adapter's product is scaled by lora_alpha / r. */
  lora_alpha: number;
  target_modules: LoraModule[];
}

const invalid = (key: string, expected: string, value: unknown): SinkflexError =>
  new SinkflexError('SINKFLEX_CONFIG_INVALID', `adapter: ${key} must be ${expected}, it is ${JSON.stringify(value)}`, { details: { key } });

/** Checks a choice of adapters for a model; `all-linear` is PEFT's word for every layer that can have one. */
export function parseLora(
  o: { r: number; lora_alpha: number; target_modules: readonly string[] | string },
  config: ModelConfig,
): LoraConfig {
  if (!Number.isInteger(o.r) || o.r < 1 || o.r > 4096) throw invalid('r', 'a whole number from 1 to 4096', o.r);
  if (!Number.isFinite(o.lora_alpha) || o.lora_alpha <= 0) throw invalid('lora_alpha', 'a positive number', o.lora_alpha);
  const there = loraModules.filter((name) => config.num_local_experts === 0 || !dense.has(name));
  const asked = typeof o.target_modules === 'string' ? [o.target_modules] : o.target_modules;
  const chosen = asked.length === 1 && asked[0] === 'all-linear' ? there : asked;
  for (const name of chosen)
    if (!(there as readonly string[]).includes(name))
      throw invalid('target_modules', `all-linear or among ${there.join(', ')} for ${config.model_type}`, name);
  if (chosen.length === 0) throw invalid('target_modules', 'at least one module', o.target_modules);
  return { r: o.r, lora_alpha: o.lora_alpha, target_modules: there.filter((name) => chosen.includes(name)) };
}

const dense = new Set<string>(['gate_proj', 'up_proj', 'down_proj']);

/** adapter_config.json of a PEFT folder. What would change the numbers and is not computed here is refused by name. */
export function readLora(json: unknown, config: ModelConfig): LoraConfig {
  const c = json as Record<string, unknown>;
  if (typeof c !== 'object' || c === null || c.peft_type !== 'LORA')
    throw invalid('peft_type', 'LORA', (c as { peft_type?: unknown } | null)?.peft_type);
  for (const [key, plain] of Object.entries(unsupported))
    if (c[key] !== undefined && c[key] !== null && !plain.some((value) => JSON.stringify(value) === JSON.stringify(c[key])))
      throw new SinkflexError('SINKFLEX_CONFIG_UNSUPPORTED', `adapter_config.json: ${key} = ${JSON.stringify(c[key])} is not supported`, {
        details: { key },
      });
  return parseLora({ r: c.r as number, lora_alpha: c.lora_alpha as number, target_modules: c.target_modules as string[] }, config);
}

const unsupported: Record<string, unknown[]> = {
  bias: ['none'],
  use_dora: [false],
  use_rslora: [false],
  fan_in_fan_out: [false],
  modules_to_save: [[]],
  layers_to_transform: [[]],
  rank_pattern: [{}],
  alpha_pattern: [{}],
  target_parameters: [[]],
};

/** What PEFT's LoraConfig reads. `base`: the folder or name of the model below. */
export function adapterConfigJson(lora: LoraConfig, base: string | null): Record<string, unknown> {
  return {
    peft_type: 'LORA',
    task_type: 'CAUSAL_LM',
    base_model_name_or_path: base,
    r: lora.r,
    lora_alpha: lora.lora_alpha,
    target_modules: lora.target_modules,
    lora_dropout: 0,
    bias: 'none',
    fan_in_fan_out: false,
    use_dora: false,
    use_rslora: false,
    modules_to_save: null,
    inference_mode: true,
    init_lora_weights: true,
  };
}

function moduleShape(c: ModelConfig, name: LoraModule): { path: string; out: number; into: number } {
  const h = c.hidden_size;
  const queries = c.num_attention_heads * c.head_dim;
  const keys = c.num_key_value_heads * c.head_dim;
  const I = c.intermediate_size;
  const [path, out, into] = {
    q_proj: ['self_attn', queries, h],
    k_proj: ['self_attn', keys, h],
    v_proj: ['self_attn', keys, h],
    o_proj: ['self_attn', h, queries],
    gate_proj: ['mlp', I, h],
    up_proj: ['mlp', I, h],
    down_proj: ['mlp', h, I],
  }[name] as [string, number, number];
  return { path: `${path}.${name}`, out, into };
}

export function loraTensors(c: ModelConfig, lora: LoraConfig): [name: string, shape: number[], decay: boolean][] {
  const list: [string, number[], boolean][] = [];
  for (let l = 0; l < c.num_hidden_layers; l++)
    for (const name of lora.target_modules) {
      const { path, out, into } = moduleShape(c, name);
      const module = `base_model.model.model.layers.${l}.${path}`;
      list.push([`${module}.lora_A.weight`, [lora.r, into], true], [`${module}.lora_B.weight`, [out, lora.r], true]);
    }
  return list;
}

/** The layer of the base that an adapter's tensor belongs to. */
export const baseTensorOf = (adapterTensor: string): string =>
  `${adapterTensor.replace(/^base_model\.model\./, '').replace(/\.lora_[AB]\.weight$/, '')}.weight`;

/** weight [out, in] += scale * b [out, r] a [r, in], in float64 a sum. */
export function addLowRank(weight: Float32Array, a: Float32Array, b: Float32Array, r: number, scale: number): void {
  const into = a.length / r;
  const row = new Float64Array(into);
  for (let o = 0; o < b.length / r; o++) {
    row.fill(0);
    for (let k = 0; k < r; k++) {
      const by = b[o * r + k]!;
      if (by === 0) continue;
      for (let i = 0; i < into; i++) row[i]! += by * a[k * into + i]!;
    }
    for (let i = 0; i < into; i++) weight[o * into + i]! += scale * row[i]!;
  }
}
