// Which tensors a model has and where they lie in a slot: the slot is a valid safetensors image, so a checkpoint is a slot written to disk.

import { SinkflexError } from './errors.ts';
import { type LoraConfig, loraTensors } from './lora.ts';
import { biases, type ModelConfig } from './model-config.ts';
import { BLOCK_BYTES, BLOCK_VALUES, mxfp4Bytes } from './mxfp4.ts';
import { encodeHeader, type StoredTensor } from './safetensors.ts';

export interface LayoutTensor {
  /** Hugging Face's name. */
  name: string;
  shape: number[];
  /** Bytes from the start of the data section. */
  offset: number;
  count: number;
  /** How it is stored. Norms, biases, sinks and adapters are F32 always. MXFP4: blocks [E, out, in / 32, 16], right behind them the scales. */
  dtype: 'F32' | 'BF16' | 'MXFP4';
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

/** Of matrices in a store; the rest is float32 always. mxfp4: experts as gpt-oss checkpoints have them, frozen; other matrices in bfloat16. */
export const weightDtypes = ['float32', 'bfloat16', 'mxfp4'] as const;
export type WeightDtype = (typeof weightDtypes)[number];

/** Bytes of a tensor in a slot, or of `values` of its values. */
export function storedBytes({ dtype, count }: LayoutTensor, values = count): number {
  return dtype === 'MXFP4' ? mxfp4Bytes(values) : values * (dtype === 'BF16' ? 2 : 4);
}

/** Only experts have that format, and only in blocks of 32 along their inputs. */
function checkMxfp4({ num_local_experts, hidden_size, intermediate_size, model_type }: ModelConfig): void {
  const fail = (why: string): SinkflexError =>
    new SinkflexError(
      'SINKFLEX_CONFIG_UNSUPPORTED',
      `dtype mxfp4 is for experts in blocks of ${BLOCK_VALUES} values: ${why}; take bfloat16`,
    );
  if (num_local_experts === 0) throw fail(`a ${model_type} model has no experts`);
  for (const [key, width] of Object.entries({ hidden_size, intermediate_size }))
    if (width % BLOCK_VALUES !== 0) throw fail(`${key} is ${width}`);
}

/** A tensor as the image's header has it: experts in MXFP4 under the two names of their checkpoints. */
function headerEntries(t: LayoutTensor): StoredTensor[] {
  const { name, shape, offset, dtype } = t;
  const end = offset + storedBytes(t);
  if (dtype !== 'MXFP4') return [{ name, dtype, shape, begin: offset, end }];
  const [experts, into, out] = shape as [number, number, number];
  const blocks = [experts, out, into / BLOCK_VALUES];
  const middle = offset + t.count / 2;
  return [
    { name: `${name}_blocks`, dtype: 'U8', shape: [...blocks, BLOCK_BYTES], begin: offset, end: middle },
    { name: `${name}_scales`, dtype: 'U8', shape: blocks, begin: middle, end },
  ];
}

/** safetensors allows no gaps between tensors, so those whose size keeps the next one 64-byte aligned come first. */
export function tensorLayout(config: ModelConfig, adapter?: LoraConfig, weightDtype: WeightDtype = 'float32'): TensorLayout {
  if (weightDtype === 'mxfp4') checkMxfp4(config);
  const all = (adapter === undefined ? shapes(config) : loraTensors(config, adapter)).map(([name, shape, decay]): LayoutTensor => {
    const plain = weightDtype === 'float32' || adapter !== undefined || !decay;
    const dtype = plain ? 'F32' : weightDtype === 'mxfp4' && shape.length === 3 ? 'MXFP4' : 'BF16';
    return { name, shape, decay, dtype, offset: 0, gradientOffset: 0, count: shape.reduce((a, b) => a * b, 1) };
  });
  const whole = (t: LayoutTensor): boolean => storedBytes(t) % 64 === 0;
  // Half of the bytes of an odd number of bf16 values would leave float32 ones at odd places: what is small comes last.
  const ragged = (['F32', 'BF16', 'MXFP4'] as const).flatMap((dtype) => all.filter((t) => !whole(t) && t.dtype === dtype));
  const tensors = [...all.filter(whole), ...ragged];
  let [offset, gradientOffset] = [0, 0];
  for (const t of tensors) {
    t.offset = offset;
    offset += storedBytes(t);
  }
  for (const t of [...tensors.filter((t) => t.count % 16 === 0), ...tensors.filter((t) => t.count % 16 !== 0)]) {
    t.gradientOffset = gradientOffset;
    gradientOffset += t.count * 4;
  }
  const header = encodeHeader(tensors.flatMap(headerEntries), { format: 'pt' });
  return {
    header,
    dataStart: header.length,
    dataBytes: offset,
    totalBytes: header.length + offset,
    gradientBytes: gradientOffset,
    tensors,
  };
}
