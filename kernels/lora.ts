// LoRA adapters under PEFT's names: which layers have one, what adapter_config.json says, how fresh ones begin, and their product with the base.
import { SinkflexError } from './errors.ts';
import type { ModelConfig } from './model-config.ts';

export const loraModules = ['q_proj', 'k_proj', 'v_proj', 'o_proj', 'gate_proj', 'up_proj', 'down_proj'] as const;
/** Of all experts of a layer at once: PEFT's target_parameters. `experts` is a word for both. */
export const loraParameters = ['mlp.experts.gate_up_proj', 'mlp.experts.down_proj'] as const;
export type LoraModule = (typeof loraModules)[number] | (typeof loraParameters)[number];

/** The keys of adapter_config.json that matter, under PEFT's names. */
export interface LoraConfig {
  /** Rank. */
  r: number;
  /** The adapter's product is scaled by lora_alpha / r. */
  lora_alpha: number;
  target_modules: LoraModule[];
}

const isParameter = (name: string): boolean => (loraParameters as readonly string[]).includes(name);

const invalid = (key: string, expected: string, value: unknown): SinkflexError =>
  new SinkflexError('SINKFLEX_CONFIG_INVALID', `adapter: ${key} must be ${expected}, it is ${JSON.stringify(value)}`, { details: { key } });

/** Checks a choice of adapters for a model; `all-linear` is PEFT's word for every linear layer (of attention alone where there are experts). */
export function parseLora(
  o: { r: number; lora_alpha: number; target_modules: readonly string[] | string },
  config: ModelConfig,
): LoraConfig {
  if (!Number.isInteger(o.r) || o.r < 1 || o.r > 4096) throw invalid('r', 'a whole number from 1 to 4096', o.r);
  if (!Number.isFinite(o.lora_alpha) || o.lora_alpha <= 0) throw invalid('lora_alpha', 'a positive number', o.lora_alpha);
  const linear = loraModules.filter((name) => config.num_local_experts === 0 || !dense.has(name));
  const parameters = config.num_local_experts > 0 ? loraParameters : [];
  const there: readonly LoraModule[] = [...linear, ...parameters];
  const words: Record<string, readonly string[]> = { 'all-linear': linear, ...(parameters.length > 0 ? { experts: parameters } : {}) };
  const asked = typeof o.target_modules === 'string' ? [o.target_modules] : o.target_modules;
  const chosen = asked.flatMap((name) => words[name] ?? [name]);
  for (const name of chosen)
    if (!(there as readonly string[]).includes(name))
      throw invalid('target_modules', `among ${[...Object.keys(words), ...there].join(', ')} for ${config.model_type}`, name);
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
  const listed = (key: string): string[] => {
    const value = c[key] ?? [];
    if (typeof value === 'string') return [value];
    if (!Array.isArray(value) || !value.every((x) => typeof x === 'string')) throw invalid(key, 'a list of names', value);
    return value;
  };
  // PEFT matches a parameter by the end of its name.
  const parameters = listed('target_parameters').map((name) => loraParameters.find((full) => full.endsWith(name)) ?? name);
  const target_modules = [...listed('target_modules'), ...parameters];
  return parseLora({ r: c.r as number, lora_alpha: c.lora_alpha as number, target_modules }, config);
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
};

/** What PEFT's LoraConfig reads. `base`: the folder or name of the model below. */
export function adapterConfigJson(lora: LoraConfig, base: string | null): Record<string, unknown> {
  return {
    peft_type: 'LORA',
    task_type: 'CAUSAL_LM',
    base_model_name_or_path: base,
    r: lora.r,
    lora_alpha: lora.lora_alpha,
    target_modules: lora.target_modules.filter((name) => !isParameter(name)),
    ...(lora.target_modules.some(isParameter) ? { target_parameters: lora.target_modules.filter(isParameter) } : {}),
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

/** `base`: the tensor of the base that it is added to. */
interface Adapted {
  path: string;
  out: number;
  into: number;
  /** Adapters that share the two matrices; 1 but for experts. */
  experts: number;
  base: string;
}

function moduleShape(c: ModelConfig, lora: LoraConfig, name: LoraModule): Adapted {
  const h = c.hidden_size;
  const queries = c.num_attention_heads * c.head_dim;
  const keys = c.num_key_value_heads * c.head_dim;
  const I = c.intermediate_size;
  const experts = c.num_local_experts;
  if (name === 'mlp.experts.gate_up_proj') {
    // PEFT wraps one parameter of a module after the other: with both adapted, the first is the inner one.
    const inner = lora.target_modules.includes('mlp.experts.down_proj');
    return { path: inner ? 'mlp.experts.base_layer' : 'mlp.experts', out: 2 * I, into: h, experts, base: name };
  }
  if (name === 'mlp.experts.down_proj') return { path: 'mlp.experts', out: h, into: I, experts, base: name };
  const [path, out, into] = {
    q_proj: ['self_attn', queries, h],
    k_proj: ['self_attn', keys, h],
    v_proj: ['self_attn', keys, h],
    o_proj: ['self_attn', h, queries],
    gate_proj: ['mlp', I, h],
    up_proj: ['mlp', I, h],
    down_proj: ['mlp', h, I],
  }[name] as [string, number, number];
  return { path: `${path}.${name}`, out, into, experts: 1, base: `${path}.${name}.weight` };
}

export function loraTensors(c: ModelConfig, lora: LoraConfig): [name: string, shape: number[], decay: boolean][] {
  return loraPairs(c, lora).flatMap(({ module, out, into, rows }) => [
    [`${module}.lora_A.weight`, [rows, into], true] as [string, number[], boolean],
    [`${module}.lora_B.weight`, [out, rows], true] as [string, number[], boolean],
  ]);
}

interface LoraPair {
  /** A and B are `<module>.lora_A.weight` and `<module>.lora_B.weight`. */
  module: string;
  out: number;
  into: number;
  /** Rows of A, columns of B: the rank, times the experts. */
  rows: number;
  experts: number;
  /** The tensor of the base that the product is added to. */
  base: string;
}

function loraPairs(c: ModelConfig, lora: LoraConfig): LoraPair[] {
  return Array.from({ length: c.num_hidden_layers }, (_, l) =>
    lora.target_modules.map((name) => {
      const { path, out, into, experts, base } = moduleShape(c, lora, name);
      const layer = `model.layers.${l}`;
      return {
        ...{ module: `base_model.model.${layer}.${path}`, base: `${layer}.${base}` },
        ...{ out, into, experts, rows: lora.r * experts },
      };
    }),
  ).flat();
}

/** Adds every adapter to the base: weight += alpha / r B A, sums in float64. */
export function mergeLora(
  c: ModelConfig,
  lora: LoraConfig,
  adapter: (name: string) => Float32Array,
  base: (name: string, edit: (weight: Float32Array) => void) => void,
): void {
  const scale = lora.lora_alpha / lora.r;
  for (const pair of loraPairs(c, lora)) {
    const [a, b] = [adapter(`${pair.module}.lora_A.weight`), adapter(`${pair.module}.lora_B.weight`)];
    base(pair.base, (weight) => {
      if (pair.base.endsWith('.weight')) addLowRank(weight, a, b, lora.r, scale);
      else addToExperts(weight, a, b, pair, lora.r, scale);
    });
  }
}

/** weight [out, in] += scale * b [out, r] a [r, in], in float64 a sum. */
function addLowRank(weight: Float32Array, a: Float32Array, b: Float32Array, r: number, scale: number): void {
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

/** weight [experts, in, out]; of expert e, a's rows e r .. and b's columns k experts + e (PEFT's order). */
function addToExperts(weight: Float32Array, a: Float32Array, b: Float32Array, p: LoraPair, r: number, scale: number): void {
  const { experts, into, out } = p;
  const row = new Float64Array(out);
  for (let e = 0; e < experts; e++)
    for (let i = 0; i < into; i++) {
      row.fill(0);
      for (let k = 0; k < r; k++) {
        const by = a[(e * r + k) * into + i]!;
        for (let o = 0; o < out; o++) row[o]! += by * b[(o * r + k) * experts + e]!;
      }
      const at = (e * into + i) * out;
      for (let o = 0; o < out; o++) weight[at + o]! += scale * row[o]!;
    }
}
