// MXFP4 of the Open Compute Project's microscaling formats, as gpt-oss checkpoints store experts: blocks of 32 four-bit values (E2M1, two in a
// byte, low half first) that share a power of two (E8M0).
import { SinkflexError } from './errors.ts';

/** E2M1: sign, two bits of exponent, one of mantissa. */
const values = Float32Array.of(0, 0.5, 1, 1.5, 2, 3, 4, 6, -0, -0.5, -1, -1.5, -2, -3, -4, -6);

export const BLOCK_VALUES = 32;
export const BLOCK_BYTES = 16;

/** Bytes of as many values, with a scale a block. */
export const mxfp4Bytes = (values: number): number => (values / BLOCK_VALUES) * (BLOCK_BYTES + 1);

/** One expert: blocks [out, in / 32, 16] and scales [out, in / 32]. */
export type Mxfp4Matrix = [blocks: Uint8Array, scales: Uint8Array];

/** Learning would have to round what it learns to four bits: stores read such experts and never change them. */
export const frozen = (what: string): SinkflexError =>
  new SinkflexError('SINKFLEX_STORE_FROZEN', `${what}: experts in MXFP4 are as they were read, and cannot be changed`);

/** Experts [E, in, out] in pieces of about `most` values that end between rows of blocks. */
export function* expertSlices([experts, into, out]: readonly number[], most: number): Generator<[from: number, to: number]> {
  const whole = into! * out!;
  const row = BLOCK_VALUES * out!;
  const step = Math.max(1, Math.floor(most / row)) * row;
  for (let start = 0; start < experts! * whole; start += whole)
    for (let from = 0; from < whole; from += step) yield [start + from, start + Math.min(whole, from + step)];
}

/** Values of experts [E, in, out] from value `from` on, as many as `to` holds, widened to float32; both ends lie between rows of blocks. */
export function widenExperts([, into, out]: readonly number[], expert: (e: number) => Mxfp4Matrix, to: Float32Array, from: number): void {
  const whole = into! * out!;
  for (let at = 0; at < to.length; ) {
    const e = Math.floor((from + at) / whole);
    const within = from + at - e * whole;
    const end = Math.min(to.length, at + whole - within);
    const [blocks, scales] = expert(e);
    widenMxfp4(blocks, scales, out!, into!, to.subarray(at, end), within / (BLOCK_VALUES * out!));
    at = end;
  }
}

/**
 * One matrix, blocks [out, in / 32, 16] and scales [out, in / 32] (2^(scale - 127); 255 is NaN), to float32 [in, out]: the checkpoint's
 * matrices are output-major, the experts of the model input-major. `to` begins with row 32 * `first` and has as many as it holds.
 */
export function widenMxfp4(blocks: Uint8Array, scales: Uint8Array, out: number, into: number, to: Float32Array, first = 0): void {
  const perRow = into / BLOCK_VALUES;
  const count = to.length / (BLOCK_VALUES * out);
  for (let o = 0; o < out; o++) {
    for (let b = 0; b < count; b++) {
      const at = o * perRow + first + b;
      const code = scales[at]!;
      const scale = code === 255 ? Number.NaN : 2 ** (code - 127);
      let row = b * BLOCK_VALUES * out + o;
      for (let i = 0; i < BLOCK_BYTES; i++) {
        const pair = blocks[at * BLOCK_BYTES + i]!;
        to[row] = values[pair & 15]! * scale;
        to[row + out] = values[pair >> 4]! * scale;
        row += 2 * out;
      }
    }
  }
}
