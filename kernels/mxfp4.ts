// MXFP4 of the Open Compute Project's microscaling formats, as gpt-oss checkpoints store experts: blocks of 32 four-bit values (E2M1, two in a
// byte, low half first) that share a power of two (E8M0).

/** E2M1: sign, two bits of exponent, one of mantissa. */
const values = Float32Array.of(0, 0.5, 1, 1.5, 2, 3, 4, 6, -0, -0.5, -1, -1.5, -2, -3, -4, -6);

export const BLOCK_VALUES = 32;
export const BLOCK_BYTES = 16;

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
