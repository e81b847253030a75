// Which tensors a model has and where they lie in a slot: the slot is a valid safetensors image, so a checkpoint is a slot written to disk.
import { type LoraConfig, loraTensors } from './lora.ts';
import { biases, type ModelConfig } from './model-config.ts';
import { encodeHeader } from './safetensors.ts';

export interface LayoutTensor {
  /** Hugging Face's name. */
  name: string;
  shape: number[];
  /** Bytes from the start of the data section. */
  offset: number;
  count: number;
  /** How it is stored. bfloat16 stores keep norms, biases and sinks in float32. */
  dtype: 'F32' | 'BF16';
  /** Bytes from the start of the gradients, which are float32 always. */
  gradientOffset: number;
  /** Weight decay applies: matrices, not norms, biases and sinks. */
  decay: boolean;
}

export interface TensorLayout {
  /** The 8-byte length and the JSON, padded so that the data section starts at a multiple of 64. */
  header: Uint8Array;
  dataStart: number;
  dataBytes: number;
  /** dataStart + dataBytes: the size of a slot and of model.safetensors. */
  totalBytes: number;
  gradientBytes: number;
  tensors: LayoutTensor[];
}

function shapes(c: ModelConfig): [name: string, shape: number[], decay: boolean][] {
  const h = c.hidden_size;
  const queries = c.num_attention_heads * c.head_dim;
  const keys = c.num_key_value_heads * c.head_dim;
  const [E, I] = [c.num_local_experts, c.intermediate_size];
  const { qkvBias, oBias, mlpBias } = biases(c);
  const list: [string, number[], boolean][] = [['model.embed_tokens.weight', [c.vocab_size, h], true]];
  for (let l = 0; l < c.num_hidden_layers; l++) {
    const p = `model.layers.${l}`;
    list.push([`${p}.input_layernorm.weight`, [h], false]);
    for (const [name, out, into, bias] of [
      ['q', queries, h, qkvBias],
      ['k', keys, h, qkvBias],
      ['v', keys, h, qkvBias],
      ['o', h, queries, oBias],
    ] as const) {
      list.push([`${p}.self_attn.${name}_proj.weight`, [out, into], true]);
      if (bias) list.push([`${p}.self_attn.${name}_proj.bias`, [out], false]);
    }
    if (c.model_type === 'gpt_oss') list.push([`${p}.self_attn.sinks`, [c.num_attention_heads], false]);
    if (c.model_type === 'qwen3')
      list.push([`${p}.self_attn.q_norm.weight`, [c.head_dim], false], [`${p}.self_attn.k_norm.weight`, [c.head_dim], false]);
    list.push([`${p}.post_attention_layernorm.weight`, [h], false]);
    if (E > 0) {
      list.push(
        [`${p}.mlp.router.weight`, [E, h], true],
        [`${p}.mlp.router.bias`, [E], false],
        [`${p}.mlp.experts.gate_up_proj`, [E, h, 2 * I], true],
        [`${p}.mlp.experts.gate_up_proj_bias`, [E, 2 * I], false],
        [`${p}.mlp.experts.down_proj`, [E, I, h], true],
        [`${p}.mlp.experts.down_proj_bias`, [E, h], false],
      );
      continue;
    }
    for (const [name, out, into] of [
      ['gate', I, h],
      ['up', I, h],
      ['down', h, I],
    ] as const) {
      list.push([`${p}.mlp.${name}_proj.weight`, [out, into], true]);
      if (mlpBias) list.push([`${p}.mlp.${name}_proj.bias`, [out], false]);
    }
  }
  list.push(['model.norm.weight', [h], false]);
  if (!c.tie_word_embeddings) list.push(['lm_head.weight', [c.vocab_size, h], true]);
  return list;
}

/** Of matrices in a store; the rest is float32 always. */
export type WeightDtype = 'float32' | 'bfloat16';

/** safetensors allows no gaps between tensors, so those whose size keeps the next one 64-byte aligned come first. */
export function tensorLayout(config: ModelConfig, adapter?: LoraConfig, weightDtype: WeightDtype = 'float32'): TensorLayout {
  const all = (adapter === undefined ? shapes(config) : loraTensors(config, adapter)).map(([name, shape, decay]): LayoutTensor => {
    const dtype = weightDtype === 'bfloat16' && decay ? 'BF16' : 'F32';
    return { name, shape, decay, dtype, offset: 0, gradientOffset: 0, count: shape.reduce((a, b) => a * b, 1) };
  });
  const bytes = (t: LayoutTensor): number => t.count * (t.dtype === 'BF16' ? 2 : 4);
  const whole = (t: LayoutTensor): boolean => bytes(t) % 64 === 0;
  // Half of the bytes of an odd number of bf16 values would leave float32 ones at odd places: they come last.
  const ragged = all.filter((t) => !whole(t));
  const tensors = [...all.filter(whole), ...ragged.filter((t) => t.dtype === 'F32'), ...ragged.filter((t) => t.dtype === 'BF16')];
  let [offset, gradientOffset] = [0, 0];
  for (const t of tensors) {
    t.offset = offset;
    offset += bytes(t);
  }
  for (const t of [...tensors.filter((t) => t.count % 16 === 0), ...tensors.filter((t) => t.count % 16 !== 0)]) {
    t.gradientOffset = gradientOffset;
    gradientOffset += t.count * 4;
  }
  const header = encodeHeader(
    tensors.map((t) => ({ name: t.name, dtype: t.dtype, shape: t.shape, begin: t.offset, end: t.offset + bytes(t) })),
    { format: 'pt' },
  );
  return {
    header,
    dataStart: header.length,
    dataBytes: offset,
    totalBytes: header.length + offset,
    gradientBytes: gradientOffset,
    tensors,
  };
}
