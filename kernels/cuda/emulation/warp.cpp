// What the lanes of a warp compute together: shuffles, votes, ldmatrix and mma.sync, by the fragment layouts of the PTX
// ISA (mma.m16n8k16: lane = 4 g + t; A holds rows g and g + 8, columns 2t and 2t + 8; B rows 2t and 2t + 8, column g;
// C rows g and g + 8, columns 2t and 2t + 1).
#include "machine.h"

namespace emulation {

namespace {

float as_float(uint32_t bits) {
  float f;
  memcpy(&f, &bits, 4);
  return f;
}
float widen_f16(uint32_t h) {
  const uint32_t sign = (h & 0x8000u) << 16, exponent = (h >> 10) & 31u, fraction = h & 0x3ffu;
  if (exponent == 31) return as_float(sign | 0x7f800000u | fraction << 13);
  if (exponent == 0) return as_float(sign | 0x3f800000u) * (float)fraction * 0x1p-24f;
  return as_float(sign | (exponent + 112u) << 23 | fraction << 13);
}
float widen(Operation op, uint32_t pair, int half) {
  const uint32_t bits = half ? pair >> 16 : pair & 0xffffu;
  return op == kMmaBf16 ? as_float(bits << 16) : widen_f16(bits);
}

void multiply(Warp& warp, Operation op) {
  float a[16][16], b[16][8], c[16][8];
  for (int i = 0; i < kWarp; i++) {
    const int g = i >> 2, t = i & 3;
    const uint32_t* in = warp.lanes[i].in;
    for (int h = 0; h < 2; h++) {
      a[g][2 * t + h] = widen(op, in[0], h), a[g + 8][2 * t + h] = widen(op, in[1], h);
      a[g][2 * t + 8 + h] = widen(op, in[2], h), a[g + 8][2 * t + 8 + h] = widen(op, in[3], h);
      b[2 * t + h][g] = widen(op, in[4], h), b[2 * t + 8 + h][g] = widen(op, in[5], h);
      c[g][2 * t + h] = as_float(in[6 + h]), c[g + 8][2 * t + h] = as_float(in[8 + h]);
    }
  }
  for (int r = 0; r < 16; r++)
    for (int k = 0; k < 16; k++)
      for (int n = 0; n < 8; n++) c[r][n] += a[r][k] * b[k][n];
  for (int i = 0; i < kWarp; i++) {
    const int g = i >> 2, t = i & 3;
    float out[4] = {c[g][2 * t], c[g][2 * t + 1], c[g + 8][2 * t], c[g + 8][2 * t + 1]};
    memcpy(warp.lanes[i].out, out, sizeof out);
  }
}

// ldmatrix.x4: lane 8 m + r brings the address of row r of matrix m (8 x 8 of 16 bits); lane i receives of each matrix
// row i / 4, columns 2 (i % 4) and the next; transposed: the same of the transposed matrix.
void load_matrices(Warp& warp, bool transposed, int first_thread) {
  uint16_t matrix[4][8][8];
  for (int i = 0; i < kWarp; i++) {
    uintptr_t at;
    memcpy(&at, warp.lanes[i].in, sizeof at);
    if (!is_shared((const void*)at)) {
      report("ldmatrix reads outside shared memory");
      continue;
    }
    if (at % 16) report("ldmatrix reads from an address that is no multiple of 16 bytes");
    shadow_access((const void*)at, 16, false, false, first_thread + i, nullptr);
    if (!machine.abandoned) memcpy(matrix[i / 8][i % 8], (const void*)at, 16);
  }
  for (int i = 0; i < kWarp; i++)
    for (int m = 0; m < 4; m++) {
      const int r = i / 4, c = 2 * (i % 4);
      const uint32_t low = transposed ? matrix[m][c][r] : matrix[m][r][c];
      const uint32_t high = transposed ? matrix[m][c + 1][r] : matrix[m][r][c + 1];
      warp.lanes[i].out[m] = low | high << 16;
    }
}

}  // namespace

void compute(Warp& warp, Operation op, int first_thread) {
  switch (op) {
    case kShuffle:
    case kShuffleXor:
    case kShuffleUp:
    case kShuffleDown:
      for (int i = 0; i < kWarp; i++) {
        const int argument = (int)warp.lanes[i].in[1];
        int from = op == kShuffle      ? argument & 31
                   : op == kShuffleXor ? i ^ argument
                   : op == kShuffleUp  ? i - argument
                                       : i + argument;
        if (from < 0 || from >= kWarp) from = i;
        warp.lanes[i].out[0] = warp.lanes[from].in[0];
      }
      break;
    case kBallot: {
      uint32_t votes = 0;
      for (int i = 0; i < kWarp; i++) votes |= (warp.lanes[i].in[0] ? 1u : 0u) << i;
      for (Lane& l : warp.lanes) l.out[0] = votes;
      break;
    }
    case kSyncWarp:
      warp.syncs++;
      break;
    case kMmaBf16:
    case kMmaF16:
      multiply(warp, op);
      break;
    case kLoadMatrix:
    case kLoadMatrixTransposed:
      load_matrices(warp, op == kLoadMatrixTransposed, first_thread);
      break;
  }
}

}  // namespace emulation
