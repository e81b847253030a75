// The optimiser's state: where the moments lie in their block of memory, which is also the data of their safetensors file: m.<tensor> and
// v.<tensor>, in float32, or as 8-bit codes (U8) with m_scale.<tensor> and v_scale.<tensor> beside them (one float32 a block of 256; the codes
// are those of kernels/ops/moment-codes.h), and step (int64). The engine's native side moves the bytes; header and offsets are made here.
import { open as openFile, rename, rm } from 'node:fs/promises';
import { SinkflexError } from './errors.ts';
import { encodeHeader, SafetensorsFile, type StoredTensor } from './safetensors.ts';
import { type LayoutTensor, storedBytes, type TensorLayout } from './tensor-layout.ts';

/** What AdamW's moments are kept in: 8 or 2 bytes a parameter. */
export type MomentDtype = 'float32' | '8bit';

/** Values of a block with one scale. */
const BLOCK = 256;
/** Smaller tensors, and norms, biases and sinks, keep float32: they cost nothing and matter much. */
const LEAST_QUANTIZED = 4096;

export interface MomentLayout {
  /** In the order of the block. */
  entries: StoredTensor[];
  bytes: number;
  /** Offsets into the block, one a tensor of the layout; -1 of scales: the moments are float32; -1 of m and v: they are of another shard. */
  m: Float64Array;
  v: Float64Array;
  mScale: Float64Array;
  vScale: Float64Array;
}

/** Of a group of trainers that share the moments (ZeRO-1): each keeps those of some tensors, neighbours in the layout. */
export interface Shard {
  rank: number;
  members: number;
}

/** The tensors of a shard: cut where the parameters before are closest to its part of all. */
export function shardTensors(layout: TensorLayout, { rank, members }: Shard): LayoutTensor[] {
  const total = layout.tensors.reduce((n, t) => n + t.count, 0);
  let before = 0;
  return layout.tensors.filter(({ count }) => {
    const owner = Math.min(members - 1, Math.floor(((before + count / 2) * members) / total));
    before += count;
    return owner === rank;
  });
}

/** Where the tensors of a shard lie in an image, in bytes. */
export function shardRange(layout: TensorLayout, shard: Shard): { from: number; to: number } {
  const tensors = shardTensors(layout, shard);
  const last = tensors.at(-1);
  if (last === undefined) return { from: 0, to: 0 };
  const to = last.offset + storedBytes(last);
  return { from: layout.dataStart + tensors[0]!.offset, to: layout.dataStart + to };
}

export function momentLayout(layout: TensorLayout, dtype: MomentDtype = 'float32', shard?: Shard): MomentLayout {
  const quantized = (t: LayoutTensor): boolean => dtype === '8bit' && t.decay && t.count >= LEAST_QUANTIZED;
  const kept = shard === undefined ? layout.tensors : shardTensors(layout, shard);
  const plain = kept.filter((t) => !quantized(t));
  const coded = kept.filter(quantized);
  const entries: StoredTensor[] = [];
  const at = new Map<string, number>();
  let bytes = 0;
  const put = (kind: string, t: LayoutTensor, stored: 'F32' | 'U8', shape: number[]): void => {
    const name = `${kind}.${t.name}`;
    const length = shape.reduce((a, b) => a * b, stored === 'F32' ? 4 : 1);
    entries.push({ name, dtype: stored, shape, begin: bytes, end: bytes + length });
    at.set(name, bytes);
    bytes += length;
  };
  // Bytes last, so that every float32 lies at a multiple of four.
  for (const kind of ['m', 'v']) for (const t of plain) put(kind, t, 'F32', t.shape);
  for (const kind of ['m_scale', 'v_scale']) for (const t of coded) put(kind, t, 'F32', [Math.ceil(t.count / BLOCK)]);
  for (const kind of ['m', 'v']) for (const t of coded) put(kind, t, 'U8', t.shape);
  const offsets = (kind: string): Float64Array => Float64Array.from(layout.tensors, (t) => at.get(`${kind}.${t.name}`) ?? -1);
  return { entries, bytes, m: offsets('m'), v: offsets('v'), mScale: offsets('m_scale'), vScale: offsets('v_scale') };
}

/** Where slots keep the moments behind their image where the store says so: from `start` the block, then the count of steps (int64) up to `end`. */
export function momentSection(layout: TensorLayout, moments: MomentLayout): { start: number; end: number } {
  const start = Math.ceil(layout.totalBytes / 64) * 64;
  return { start, end: start + moments.bytes + 8 };
}

/** Of a slot of a store whose slots hold such moments, or none. */
export const slotBytes = (layout: TensorLayout, moments: MomentDtype | undefined): number =>
  moments === undefined ? layout.totalBytes : momentSection(layout, momentLayout(layout, moments)).end;

/** The moments of an engine: of all tensors, its own, and where each slot of the store has them (-1: the engine keeps them itself). */
export function engineMoments(
  store: { layout: TensorLayout; moments: MomentDtype | undefined },
  o: { moments?: MomentDtype; seed?: number; shard?: Shard } = {},
): { whole: MomentLayout; own: MomentLayout; slot: number; seed: number } {
  const { moments = store.moments, seed = 0, shard } = o;
  const whole = momentLayout(store.layout, moments);
  if (store.moments === undefined) return { whole, own: shard ? momentLayout(store.layout, moments, shard) : whole, slot: -1, seed };
  if (moments !== store.moments || shard !== undefined)
    throw new SinkflexError(
      'SINKFLEX_BAD_ARGUMENT',
      `the slots of the store hold all moments in ${store.moments}: optimizer.moments and optimizer.shard cannot differ`,
    );
  return { whole, own: whole, slot: momentSection(store.layout, whole).start, seed };
}

/** The section of a slot from a file; `section` gives bytes of it. */
export function readOptimizerInto(path: string, moments: MomentLayout, section: (from: number, bytes: number) => Uint8Array): void {
  const { from, step } = readOptimizerPieces(path, moments);
  const file = new SafetensorsFile(path);
  try {
    moments.entries.forEach((e, i) => {
      file.readInto(section(e.begin, e.end - e.begin), from[i]!);
    });
  } finally {
    file.close();
  }
  const count = section(moments.bytes, 8);
  new DataView(count.buffer, count.byteOffset).setBigInt64(0, BigInt(step), true);
}

/** Header for: the block, step. */
export function optimizerHeader(moments: MomentLayout): Uint8Array {
  const step = { name: 'step', dtype: 'I64', shape: [1], begin: moments.bytes, end: moments.bytes + 8 };
  return encodeHeader([...moments.entries, step], { format: 'sinkflex.optimizer' });
}

export interface OptimizerPieces {
  /** Bytes from the start of the file, of the block, and how many; one an entry. */
  from: Float64Array;
  to: Float64Array;
  bytes: Float64Array;
  step: number;
}

/** Checks a file against the layout; errors name the tensor. `kept`: the shard of it that is wanted. */
export function readOptimizerPieces(path: string, moments: MomentLayout, kept = moments): OptimizerPieces {
  const file = new SafetensorsFile(path);
  try {
    const { tensors, dataStart } = file.header;
    const left = new Set(tensors.keys());
    const take = (name: string, dtype: string, shape: number[]): number => {
      const t = tensors.get(name);
      const fail = (what: string): SinkflexError =>
        new SinkflexError('SINKFLEX_CHECKPOINT_TENSOR', `${path}: tensor ${name} ${what}`, { details: { tensor: name } });
      if (!t) throw fail('is missing');
      if (t.dtype !== dtype || t.shape.join() !== shape.join()) throw fail(`is ${t.dtype} [${t.shape}], needed is ${dtype} [${shape}]`);
      left.delete(name);
      return dataStart + t.begin;
    };
    const places = new Map(moments.entries.map((e) => [e.name, take(e.name, e.dtype, e.shape)]));
    take('step', 'I64', [1]);
    for (const name of left) {
      throw new SinkflexError('SINKFLEX_CHECKPOINT_TENSOR', `${path}: tensor ${name} is left over`, { details: { tensor: name } });
    }
    const step = file.readInt64(tensors.get('step')!);
    if (step < 0n || step > BigInt(Number.MAX_SAFE_INTEGER)) {
      throw new SinkflexError('SINKFLEX_CHECKPOINT_CORRUPT', `${path}: a step count of ${step}`);
    }
    return {
      from: Float64Array.from(kept.entries, (e) => places.get(e.name)!),
      to: Float64Array.from(kept.entries, (e) => e.begin),
      bytes: Float64Array.from(kept.entries, (e) => e.end - e.begin),
      step: Number(step),
    };
  } finally {
    file.close();
  }
}

/** Joins the files of all shards into one as a single trainer writes it, whole or not there. */
export async function joinOptimizerShards(parts: readonly string[], path: string, moments: MomentLayout): Promise<void> {
  const open = parts.map((part) => new SafetensorsFile(part));
  const temporary = `${path}.part-${process.pid}`;
  const out = await openFile(temporary, 'w');
  try {
    await out.write(optimizerHeader(moments));
    for (const name of [...moments.entries.map((e) => e.name), 'step']) {
      const file = open.find((f) => f.header.tensors.has(name));
      if (!file)
        throw new SinkflexError('SINKFLEX_CHECKPOINT_TENSOR', `${parts.join(', ')}: tensor ${name} is missing`, {
          details: { tensor: name },
        });
      const tensor = file.header.tensors.get(name)!;
      const bytes = tensor.end - tensor.begin;
      for (let at = 0; at < bytes; at += JOINED_AT_ONCE) await out.write(file.readBytes(tensor, at, Math.min(bytes - at, JOINED_AT_ONCE)));
    }
    await out.sync();
    await rename(temporary, path);
  } catch (e) {
    await rm(temporary, { force: true });
    throw e;
  } finally {
    await out.close();
    for (const file of open) file.close();
  }
}
const JOINED_AT_ONCE = 1 << 24;
