// The optimiser's state: where the moments lie in their block of memory, which is also the data of their safetensors file: m.<tensor> and
// v.<tensor>, in float32, or as 8-bit codes (U8) with m_scale.<tensor> and v_scale.<tensor> beside them (one float32 a block of 256; the codes
// are those of kernels/ops/moment-codes.h), and step (int64). The engine's native side moves the bytes; header and offsets are made here.
import { SinkflexError } from './errors.ts';
import { encodeHeader, SafetensorsFile, type StoredTensor } from './safetensors.ts';
import type { LayoutTensor, TensorLayout } from './tensor-layout.ts';

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
  /** Offsets into the block, one a tensor of the layout; -1: the moments of the tensor are float32 and have no scales. */
  m: Float64Array;
  v: Float64Array;
  mScale: Float64Array;
  vScale: Float64Array;
}

export function momentLayout(layout: TensorLayout, dtype: MomentDtype = 'float32'): MomentLayout {
  const quantized = (t: LayoutTensor): boolean => dtype === '8bit' && t.decay && t.count >= LEAST_QUANTIZED;
  const plain = layout.tensors.filter((t) => !quantized(t));
  const coded = layout.tensors.filter(quantized);
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

/** Checks a file against the layout; errors name the tensor. */
export function readOptimizerPieces(path: string, moments: MomentLayout): OptimizerPieces {
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
    const from = Float64Array.from(moments.entries, (e) => take(e.name, e.dtype, e.shape));
    take('step', 'I64', [1]);
    for (const name of left) {
      throw new SinkflexError('SINKFLEX_CHECKPOINT_TENSOR', `${path}: tensor ${name} is left over`, { details: { tensor: name } });
    }
    const step = file.readInt64(tensors.get('step')!);
    if (step < 0n || step > BigInt(Number.MAX_SAFE_INTEGER)) {
      throw new SinkflexError('SINKFLEX_CHECKPOINT_CORRUPT', `${path}: a step count of ${step}`);
    }
    return {
      from,
      to: Float64Array.from(moments.entries, (e) => e.begin),
      bytes: Float64Array.from(moments.entries, (e) => e.end - e.begin),
      step: Number(step),
    };
  } finally {
    file.close();
  }
}
