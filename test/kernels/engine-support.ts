// What the engine's tests share: tiny configurations, the golden files, and numbers about differences.
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Engine, type ModelConfig, type PackedBatch, parseModelConfig, WeightStore } from '../../kernels/index.ts';
import { SafetensorsFile } from '../../kernels/safetensors.ts';

/** A model that passes through every branch: grouped queries, alternating windows, experts of odd width, head_dim x heads != hidden. */
export function tinyConfig(over: Partial<Record<keyof ModelConfig, unknown>> = {}): ModelConfig {
  return parseModelConfig({
    model_type: 'gpt_oss',
    vocab_size: 67,
    hidden_size: 24,
    intermediate_size: 20,
    num_hidden_layers: 2,
    num_attention_heads: 4,
    num_key_value_heads: 2,
    head_dim: 8,
    num_local_experts: 3,
    num_experts_per_tok: 2,
    sliding_window: 9,
    rms_norm_eps: 1e-5,
    rope_theta: 10000,
    initializer_range: 0.3, // attention and routing far from uniform
    ...over,
  });
}

/** What makes the tiny model one of each dense architecture, with everything that only that one has. */
export const denseModels = {
  llama: {
    model_type: 'llama',
    mlp_bias: true,
    attention_bias: true,
    rope_scaling: { rope_type: 'llama3', factor: 8, low_freq_factor: 1, high_freq_factor: 4, original_max_position_embeddings: 24 },
  },
  qwen2: { model_type: 'qwen2', use_sliding_window: true, max_window_layers: 1, tie_word_embeddings: true },
  qwen3: { model_type: 'qwen3', head_dim: 10, intermediate_size: 21 },
} as const;

export function createStore(over: Partial<Record<keyof ModelConfig, unknown>> = {}, seed = 1): WeightStore {
  const store = WeightStore.create(tinyConfig(over));
  store.initialise(seed);
  return store;
}

/** The folder with golden files; undefined where it is not (the tests then skip, and say so). One that is named must be there. */
export const fixtures: string | undefined = ((named) => {
  const folder = named ?? join(process.env.SINKFLEX_SHARED ?? join('..', 'shared'), 'fixtures');
  if (existsSync(folder)) return folder;
  if (named !== undefined) throw new Error(`SINKFLEX_FIXTURES names ${named}, which is not there`);
  return undefined;
})(process.env.SINKFLEX_FIXTURES);

export type Tensors = Map<string, { shape: number[]; data: Float32Array }>;

/** Every tensor of a safetensors file of 4-byte elements; I32 ones show through integers(). */
export function readTensors(path: string): Tensors {
  const file = new SafetensorsFile(path);
  try {
    return new Map(
      [...file.header.tensors.values()].map((t) => {
        const data = new Float32Array((t.end - t.begin) / 4);
        file.read({ ...t, dtype: 'F32' }, data);
        return [t.name, { shape: t.shape, data }];
      }),
    );
  } finally {
    file.close();
  }
}

/** The bits of an I32 tensor that was read as float32. */
export function integers(data: Float32Array): Int32Array {
  return new Int32Array(data.buffer, data.byteOffset, data.length);
}

export function maxDifference(a: ArrayLike<number>, b: ArrayLike<number>): number {
  if (a.length !== b.length) return Number.POSITIVE_INFINITY;
  let worst = 0;
  for (let i = 0; i < a.length; i++) {
    const d = Math.abs(a[i]! - b[i]!);
    if (!(d <= worst)) worst = d;
  }
  return worst;
}

/** norm(a - b) / norm(b); the norm of a where b is 0. */
export function relativeError(a: ArrayLike<number>, b: ArrayLike<number>): number {
  if (a.length !== b.length) return Number.POSITIVE_INFINITY;
  let [difference, norm] = [0, 0];
  for (let i = 0; i < a.length; i++) {
    difference += (a[i]! - b[i]!) ** 2;
    norm += b[i]! ** 2;
  }
  return norm === 0 ? Math.sqrt(difference) : Math.sqrt(difference / norm);
}

/** [norm, sum x_i cos(0.37 i + 0.1)]: the fingerprint that the golden files use. */
export function fingerprint(x: ArrayLike<number>): [number, number] {
  let [squares, sum] = [0, 0];
  for (let i = 0; i < x.length; i++) {
    squares += x[i]! ** 2;
    sum += x[i]! * Math.cos(0.37 * i + 0.1);
  }
  return [Math.sqrt(squares), sum];
}

/** One turn in a sequence of its own. */
export async function generateOnce(engine: Engine, r: Parameters<Engine['generate']>[1]): ReturnType<Engine['generate']> {
  const sequence = await engine.openSequence();
  try {
    return await engine.generate(sequence, r);
  } finally {
    engine.closeSequence(sequence);
  }
}

export function temporaryFolder(t: { teardown(f: () => void): void }): string {
  const folder = mkdtempSync(join(tmpdir(), 'sinkflex-engine-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** A tensor of a safetensors file that a test makes. */
export interface Part {
  name: string;
  dtype: string;
  shape: number[];
  data: Uint8Array;
}
export function file(parts: Part[]): Uint8Array {
  let at = 0;
  const header: Record<string, unknown> = {};
  for (const p of parts) {
    header[p.name] = { dtype: p.dtype, shape: p.shape, data_offsets: [at, at + p.data.length] };
    at += p.data.length;
  }
  return raw(JSON.stringify(header), Buffer.concat(parts.map((p) => p.data)));
}
export function raw(json: string, data: Uint8Array): Uint8Array {
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(Buffer.byteLength(json)));
  return Buffer.concat([length, Buffer.from(json), data]);
}

/** Deterministic noise in [-1, 1). */
export function noise(i: number, salt: number): number {
  const x = Math.imul(Math.imul(i + 1, 0x9e3779b1) ^ (salt * 0x85ebca6b), 0xc2b2ae35);
  return ((x ^ (x >>> 15)) >>> 0) / 2 ** 31 - 1;
}

/** Sequences of such lengths, one after another. */
export function packed(lengths: number[], vocab = 67): PackedBatch {
  const cuSeqlens = Int32Array.from([0, ...lengths.map((_, i) => lengths.slice(0, i + 1).reduce((a, b) => a + b, 0))]);
  const ids = Int32Array.from({ length: cuSeqlens.at(-1)! }, (_, i) => Math.floor(((noise(i, 3) + 1) / 2) * vocab));
  return { ids, cuSeqlens };
}

/** One optimiser step over a few tokens that depend on the version, which it publishes. */
export async function learnStep(engine: Engine, version: number): Promise<void> {
  const batch = packed([17 + (version % 3), 8], engine.store.config.vocab_size);
  await engine.forward(batch, { keep: true });
  await engine.backward({ dLogprobs: new Float32Array(batch.ids.length).fill(-0.1) });
  await engine.optimizerStep({ lr: 1e-2, weightDecay: 0.01, lineage: 0, version });
}
