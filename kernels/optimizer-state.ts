// The optimiser's state as a safetensors file: m.<tensor>, v.<tensor> (float32) and step (int64). The engine's native side moves the bytes
// (kernels/model/moments_file.h); the header is written and checked here.
import { SinkflexError } from './errors.ts';
import { encodeHeader, SafetensorsFile } from './safetensors.ts';
import type { TensorLayout } from './tensor-layout.ts';

/** Header for: all m in the order of the layout, all v, step. */
export function optimizerHeader(layout: TensorLayout): Uint8Array {
  const moments = ['m', 'v'].flatMap((kind, i) =>
    layout.tensors.map((t) => {
      const begin = i * layout.dataBytes + t.offset;
      return { name: `${kind}.${t.name}`, dtype: 'F32', shape: t.shape, begin, end: begin + t.count * 4 };
    }),
  );
  const begin = 2 * layout.dataBytes;
  return encodeHeader([...moments, { name: 'step', dtype: 'I64', shape: [1], begin, end: begin + 8 }], { format: 'sinkflex.optimizer' });
}

export interface OptimizerOffsets {
  /** Bytes from the start of the file, one a tensor of the layout. */
  m: Float64Array;
  v: Float64Array;
  step: number;
}

/** Checks a file against the layout; errors name the tensor. */
export function readOptimizerOffsets(path: string, layout: TensorLayout): OptimizerOffsets {
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
    const m = Float64Array.from(layout.tensors, (t) => take(`m.${t.name}`, 'F32', t.shape));
    const v = Float64Array.from(layout.tensors, (t) => take(`v.${t.name}`, 'F32', t.shape));
    take('step', 'I64', [1]);
    for (const name of left) {
      throw new SinkflexError('SINKFLEX_CHECKPOINT_TENSOR', `${path}: tensor ${name} is left over`, { details: { tensor: name } });
    }
    const step = file.readInt64(tensors.get('step')!);
    if (step < 0n || step > BigInt(Number.MAX_SAFE_INTEGER)) {
      throw new SinkflexError('SINKFLEX_CHECKPOINT_CORRUPT', `${path}: a step count of ${step}`);
    }
    return { m, v, step: Number(step) };
  } finally {
    file.close();
  }
}
