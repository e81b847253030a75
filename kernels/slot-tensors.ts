// The tensors of a slot as float32 numbers, whatever they are stored in: float32 ones are views, bfloat16 ones are widened copies that are
// rounded to nearest as they go back, MXFP4 ones widened copies that do not.
import { BLOCK_VALUES, frozen, type Mxfp4Matrix, widenExperts } from './mxfp4.ts';
import type { LayoutTensor, TensorLayout } from './tensor-layout.ts';

/** Node's. */
const LARGEST_VIEW = 2 ** 32;
type View = (offset: number, bytes: number) => Uint8Array;

export class SlotTensors {
  readonly #layout: TensorLayout;
  readonly #view: View;
  readonly #byName: ReadonlyMap<string, LayoutTensor>;
  /** For edits of what is not float32: one at a time, as large as the largest. */
  #wide = new Float32Array(0);
  /** The bytes of the tensor that was asked for last. */
  #held: { tensor: LayoutTensor; bytes: Uint8Array } | undefined;

  /** `view`: bytes of the image, which may be larger than one ArrayBuffer. */
  constructor(layout: TensorLayout, view: View) {
    this.#layout = layout;
    this.#view = view;
    this.#byName = new Map(layout.tensors.map((t) => [t.name, t]));
  }

  /** Values [from, to) of a tensor (of experts in MXFP4: whole rows of blocks): a view of float32 ones, a copy of others. */
  read(t: LayoutTensor, from = 0, to = t.count): Float32Array {
    if (t.dtype === 'MXFP4') {
      const wide = new Float32Array(to - from);
      widenExperts(t.shape, (e) => this.#expert(t, e), wide, from);
      return wide;
    }
    return t.dtype === 'F32' ? this.#floats(t, from, to) : widen(this.#halves(t, from, to), new Float32Array(to - from));
  }

  /** Lets `edit` change values [from, to) of a tensor. SINKFLEX_STORE_FROZEN in MXFP4. */
  edit(t: LayoutTensor, edit: (data: Float32Array) => void, from = 0, to = t.count): void {
    if (t.dtype === 'MXFP4') throw frozen(t.name);
    if (t.dtype === 'F32') {
      edit(this.#floats(t, from, to));
      return;
    }
    if (this.#wide.length < to - from) this.#wide = new Float32Array(to - from);
    const stored = this.#halves(t, from, to);
    const data = widen(stored, this.#wide.subarray(0, to - from));
    edit(data);
    narrow(data, stored);
  }

  editNamed(name: string, edit: (data: Float32Array) => void, from?: number, to?: number): void {
    this.edit(this.#byName.get(name)!, edit, from, to);
  }

  /** Bytes of a tensor as they are stored, from byte `at` on. */
  stored(t: LayoutTensor, at: number, length: number): Uint8Array {
    return this.#view(this.#layout.dataStart + t.offset + at, length);
  }

  #expert(t: LayoutTensor, e: number): Mxfp4Matrix {
    const values = t.shape[1]! * t.shape[2]!;
    const start = this.#layout.dataStart + t.offset;
    return [
      this.#view(start + (e * values) / 2, values / 2),
      this.#view(start + t.count / 2 + (e * values) / BLOCK_VALUES, values / BLOCK_VALUES),
    ];
  }

  /** Values [from, to) as they are stored. Views are made for a tensor, or for what is asked of one that is larger than a view can be. */
  #bytes(t: LayoutTensor, size: number, from: number, to: number): Uint8Array {
    const at = this.#layout.dataStart + t.offset;
    if (size * t.count > LARGEST_VIEW) return this.#view(at + size * from, size * (to - from));
    if (this.#held?.tensor !== t) this.#held = { tensor: t, bytes: this.#view(at, size * t.count) };
    return this.#held.bytes.subarray(size * from, size * to);
  }

  #floats(t: LayoutTensor, from: number, to: number): Float32Array {
    const { buffer, byteOffset } = this.#bytes(t, 4, from, to);
    return new Float32Array(buffer, byteOffset, to - from);
  }

  #halves(t: LayoutTensor, from: number, to: number): Uint16Array {
    const { buffer, byteOffset } = this.#bytes(t, 2, from, to);
    return new Uint16Array(buffer, byteOffset, to - from);
  }
}

function widen(from: Uint16Array, to: Float32Array): Float32Array {
  const bits = new Uint32Array(to.buffer, to.byteOffset, to.length);
  for (let i = 0; i < bits.length; i++) bits[i] = from[i]! << 16;
  return to;
}

/** Round to nearest, ties to even; not-a-number stays one. */
function narrow(from: Float32Array, to: Uint16Array): void {
  const bits = new Uint32Array(from.buffer, from.byteOffset, from.length);
  for (let i = 0; i < to.length; i++) {
    const b = bits[i]!;
    to[i] = (b & 0x7fffffff) > 0x7f800000 ? (b >>> 16) | 0x40 : (b + 0x7fff + ((b >>> 16) & 1)) >>> 16;
  }
}
