// What training a model takes, said before anything is allocated: bytes by category, and the longest sequence that fits. Activations and
// scratch are measured by the code that lays them out (kernels/model/training_pass.cpp, kernels/ops/workspace.cpp), run without memory.
import { callNative, SinkflexError } from './errors.ts';
import type { LoraConfig } from './lora.ts';
import { type ModelConfig, toNative } from './model-config.ts';
import { frozen } from './mxfp4.ts';
import { addon } from './native.ts';
import { type MomentDtype, momentLayout, momentSection } from './optimizer-state.ts';
import { tensorLayout, type WeightDtype } from './tensor-layout.ts';

export interface TrainingShape {
  /** Tokens of each sequence of one micro-batch. */
  lengths: readonly number[];
  /** Tokens whose log-probability is asked for; default all but the first of each sequence. */
  rows?: number;
  threads?: number;
  checkpointing?: boolean;
  /** Slots of the weight store; default 2, what training alone needs. */
  slots?: number;
  /** Adapters are learnt, over the frozen model in one slot more; `slots` are then those of the adapters. */
  lora?: LoraConfig | undefined;
  /** Of the store's matrices; default float32. */
  dtype?: WeightDtype;
  /** Of the optimiser's moments; default float32. */
  moments?: MomentDtype;
  /** The slots hold the moments, not the trainer. */
  momentsInSlots?: boolean;
}

/** Bytes. */
export interface TrainingMemory {
  /** All slots of the store. */
  weights: number;
  gradients: number;
  optimizer: number;
  activations: number;
  /** Scratch of the operators, without the logits. */
  workspace: number;
  logits: number;
  total: number;
}

const passMemory = addon.passMemory as (
  config: object,
  lengths: Float64Array,
  rows: number,
  keep: number,
  threads: number,
) => Pick<TrainingMemory, 'activations' | 'workspace' | 'logits'>;

/** What the native forward is told to keep: nothing, everything, the inputs of the layers. */
export const keepOf = (keep: boolean, checkpointing: boolean): number => (!keep ? 0 : checkpointing ? 2 : 1);

const FLOAT = 4;

/**
 * The peak of forward, backward and optimiser step over micro-batches of this shape. Takes no memory.
 * @example
 * const { total } = trainingMemory(readModelConfig(folder), { lengths: [4096], checkpointing: true });
 */
export function trainingMemory(config: ModelConfig, o: TrainingShape): TrainingMemory {
  if (o.lengths.length === 0 || !o.lengths.every((n) => Number.isSafeInteger(n) && n > 0))
    throw new SinkflexError('SINKFLEX_BAD_ARGUMENT', 'lengths must be whole numbers of tokens, at least one');
  const { lora } = o;
  if (o.dtype === 'mxfp4' && lora === undefined) throw frozen('training all weights in dtype mxfp4');
  const layout = tensorLayout(config, lora, o.dtype);
  const rows = o.rows ?? o.lengths.reduce((sum, n) => sum + n - 1, 0);
  const pass = callNative(() =>
    passMemory(
      { ...toNative(config, lora), prefix: 0 },
      Float64Array.from(o.lengths),
      rows,
      keepOf(true, o.checkpointing ?? false),
      o.threads ?? 1,
    ),
  );
  const tiedHead = config.tie_word_embeddings && lora === undefined ? config.vocab_size * config.hidden_size * FLOAT : 0;
  const moments = momentLayout(layout, o.moments);
  const slot = o.momentsInSlots ? momentSection(layout, moments).end : layout.totalBytes;
  const parts = {
    weights: (o.slots ?? 2) * slot + (lora === undefined ? 0 : tensorLayout(config, undefined, o.dtype).totalBytes),
    gradients: layout.gradientBytes + tiedHead,
    optimizer: o.momentsInSlots ? 0 : moments.bytes,
    ...pass,
  };
  return { ...parts, total: Object.values(parts).reduce((sum, bytes) => sum + bytes, 0) };
}

/** Bytes of a forward pass that keeps nothing, over micro-batches of this shape: scoring. Takes no memory. */
export function scoringMemory(config: ModelConfig, o: Pick<TrainingShape, 'lengths' | 'rows' | 'threads' | 'lora'>): number {
  const rows = o.rows ?? o.lengths.reduce((sum, n) => sum + n - 1, 0);
  const native = { ...toNative(config, o.lora), prefix: 0 };
  const pass = callNative(() => passMemory(native, Float64Array.from(o.lengths), rows, keepOf(false, false), o.threads ?? 1));
  return pass.activations + pass.workspace + pass.logits;
}

/** The longest single sequence whose training stays within `bytes`; 0 if not even one token does. */
export function longestSequence(config: ModelConfig, bytes: number, o: Omit<TrainingShape, 'lengths' | 'rows'> = {}): number {
  const fits = (n: number): boolean => trainingMemory(config, { ...o, lengths: [n] }).total <= bytes;
  if (!fits(1)) return 0;
  let low = 1;
  let high = 2;
  while (high <= 2 ** 30 && fits(high)) [low, high] = [high, high * 2];
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (fits(middle)) low = middle;
    else high = middle;
  }
  return low;
}
