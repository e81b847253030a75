// A Hugging Face folder on disk: its configuration, its weight files, and where each tensor of a model is stored in them.
import { existsSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { SinkflexError, shown } from './errors.ts';
import { BLOCK_BYTES, BLOCK_VALUES, expertSlices, type Mxfp4Matrix, widenExperts } from './mxfp4.ts';
import { SafetensorsFile, type StoredTensor } from './safetensors.ts';
import type { SlotTensors } from './slot-tensors.ts';
import { type LayoutTensor, storedBytes } from './tensor-layout.ts';

export function readJson(path: string): unknown {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (e) {
    throw new SinkflexError('SINKFLEX_CHECKPOINT_MISSING', `${path} cannot be read (${(e as NodeJS.ErrnoException).code})`, { cause: e });
  }
  try {
    return JSON.parse(text);
  } catch (e) {
    throw new SinkflexError('SINKFLEX_CHECKPOINT_CORRUPT', `${path} is not JSON: ${(e as Error).message}`, { cause: e });
  }
}

/** model.safetensors, or the shards that the index names (file names only: an index cannot point out of its folder). */
function weightFiles(dir: string): SafetensorsFile[] {
  const index = join(dir, 'model.safetensors.index.json');
  if (!existsSync(index)) return [new SafetensorsFile(join(dir, 'model.safetensors'))];
  const map: unknown = (readJson(index) as { weight_map?: unknown } | null)?.weight_map;
  if (typeof map !== 'object' || map === null) throw new SinkflexError('SINKFLEX_CHECKPOINT_CORRUPT', `${index}: weight_map is missing`);
  const names = new Set<unknown>(Object.values(map));
  const files: SafetensorsFile[] = [];
  try {
    for (const name of names) {
      if (typeof name !== 'string' || name !== basename(name) || name === '' || name === '..') {
        throw new SinkflexError('SINKFLEX_CHECKPOINT_CORRUPT', `${index}: ${shown(name)} is not a file name`);
      }
      files.push(new SafetensorsFile(join(dir, name)));
    }
  } catch (e) {
    for (const file of files) file.close();
    throw e;
  }
  return files;
}

/** A tensor as it is stored: in one piece, or (experts in MXFP4) as blocks and scales. */
type Source = { file: SafetensorsFile; stored: StoredTensor; scales?: { file: SafetensorsFile; stored: StoredTensor } };

/** Buffers that old checkpoints carry and no model reads: they are computed from the configuration. */
const ignored = /\.rotary_emb\.inv_freq$/;

const SLICE_VALUES = 2 ** 20;
const PIECE_BYTES = 2 ** 24;

/** The weight files of a folder, checked against the tensors of a model. */
export class Checkpoint {
  readonly #files: SafetensorsFile[];
  readonly #sources: Map<LayoutTensor, Source>;
  #held: { tensor: LayoutTensor; expert: number; data: Mxfp4Matrix } | undefined;

  private constructor(files: SafetensorsFile[], sources: Map<LayoutTensor, Source>) {
    this.#files = files;
    this.#sources = sources;
  }

  /** Missing, left-over, repeated and misshapen tensors are SINKFLEX_CHECKPOINT_TENSOR errors that name them. Reads no data. */
  static open(dir: string, wanted: readonly LayoutTensor[], file?: string): Checkpoint {
    const files = file === undefined ? weightFiles(dir) : [new SafetensorsFile(join(dir, file))];
    try {
      return new Checkpoint(files, locate(files, wanted, dir));
    } catch (e) {
      for (const file of files) file.close();
      throw e;
    }
  }

  /** What of a tensor to read at once: pieces of some milliseconds. */
  *#slices(tensor: LayoutTensor): Generator<[from: number, to: number]> {
    if (this.#sources.get(tensor)!.scales !== undefined) yield* expertSlices(tensor.shape, SLICE_VALUES);
    else for (let from = 0; from < tensor.count; from += SLICE_VALUES) yield [from, Math.min(tensor.count, from + SLICE_VALUES)];
  }

  /** Copies values of a tensor of the model into `to`, from value `from` on, widened to float32: a slice, or all. */
  read(tensor: LayoutTensor, to: Float32Array, from = 0): void {
    const { file, stored, scales } = this.#sources.get(tensor)!;
    if (scales === undefined) {
      file.read(stored, to, from);
      return;
    }
    widenExperts(tensor.shape, (expert) => this.#expert(tensor, expert), to, from);
  }

  /**
   * Copies a tensor of the model into a slot that stores it; yields the bytes of the slot that each piece has filled. What the slot keeps as the
   * file does is read straight into it.
   */
  *fill(slot: SlotTensors, t: LayoutTensor): Generator<number> {
    const { file, stored, scales } = this.#sources.get(t)!;
    if (t.dtype !== 'MXFP4' && t.dtype !== stored.dtype) {
      for (const [from, to] of this.#slices(t)) {
        slot.edit(t, (data) => this.read(t, data, from), from, to);
        yield storedBytes(t, to - from);
      }
      return;
    }
    let start = 0;
    for (const part of scales === undefined ? [{ file, stored }] : [{ file, stored }, scales]) {
      const whole = part.stored.end - part.stored.begin;
      for (let from = 0; from < whole; from += PIECE_BYTES) {
        const bytes = slot.stored(t, start + from, Math.min(PIECE_BYTES, whole - from));
        part.file.readStored(part.stored, from, bytes);
        yield bytes.length;
      }
      start += whole;
    }
  }

  /** Blocks and scales of one expert; the last one is kept, since slices of it follow each other. */
  #expert(tensor: LayoutTensor, expert: number): Mxfp4Matrix {
    if (this.#held?.tensor !== tensor || this.#held.expert !== expert) {
      const { file, stored, scales } = this.#sources.get(tensor)!;
      const [, into, out] = tensor.shape as [number, number, number];
      const blocks = (into / BLOCK_VALUES) * out;
      const bytes = file.readBytes(stored, expert * blocks * BLOCK_BYTES, blocks * BLOCK_BYTES);
      this.#held = { tensor, expert, data: [bytes, scales!.file.readBytes(scales!.stored, expert * blocks, blocks)] };
    }
    return this.#held.data;
  }

  close(): void {
    for (const file of this.#files) file.close();
  }
}

function locate(files: SafetensorsFile[], wanted: readonly LayoutTensor[], dir: string): Map<LayoutTensor, Source> {
  const found = new Map<string, Source>();
  const fail = (tensor: string, what: string): SinkflexError =>
    new SinkflexError('SINKFLEX_CHECKPOINT_TENSOR', `${dir}: tensor ${tensor} ${what}`, { details: { tensor } });
  for (const file of files) {
    for (const stored of file.header.tensors.values()) {
      if (ignored.test(stored.name)) continue;
      if (found.has(stored.name)) throw fail(stored.name, 'is in two shards');
      found.set(stored.name, { file, stored });
    }
  }
  const take = (name: string, shape: readonly number[], dtypes: readonly string[]): Source => {
    const source = found.get(name);
    if (source === undefined) throw fail(name, `is missing (shape [${shape}])`);
    const { shape: has, dtype } = source.stored;
    if (has.length !== shape.length || has.some((size, d) => size !== shape[d]))
      throw fail(name, `has shape [${has}], the configuration needs [${shape}]`);
    if (!dtypes.includes(dtype)) throw fail(name, `is ${dtype}; ${dtypes.join(', ')} are read`);
    found.delete(name);
    return source;
  };
  const sources = new Map<LayoutTensor, Source>();
  for (const t of wanted) {
    if (t.dtype === 'MXFP4' && found.has(t.name))
      throw fail(t.name, 'is not stored in MXFP4, and experts are not rounded to it: take dtype bfloat16');
    if (t.shape.length !== 3 || found.has(t.name) || !found.has(`${t.name}_blocks`)) {
      sources.set(t, take(t.name, t.shape, ['F32', 'BF16', 'F16']));
      continue;
    }
    const [experts, into, out] = t.shape as [number, number, number];
    if (into % BLOCK_VALUES !== 0) throw fail(`${t.name}_blocks`, `needs a width that is a multiple of ${BLOCK_VALUES}, it is ${into}`);
    const blocks = take(`${t.name}_blocks`, [experts, out, into / BLOCK_VALUES, BLOCK_BYTES], ['U8']);
    sources.set(t, { ...blocks, scales: take(`${t.name}_scales`, [experts, out, into / BLOCK_VALUES], ['U8']) });
  }
  for (const name of found.keys()) throw fail(name, 'is left over: the configuration has no such tensor');
  return sources;
}
