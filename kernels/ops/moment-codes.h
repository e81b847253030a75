// The 8-bit code of optimiser moments: a float is a code times the largest magnitude of its block of 256. The values of
// the codes are spread over seven decades, twice as many in each decade as in the one below it ("dynamic" quantisation
// of 8-bit optimisers, arXiv 2110.02861): of 127 positive ones for signed moments, 2^i in decade i; of 254 for squares,
// 2^(i+1); and 0 and 1. The tables are made once, in the portable part, so that every instruction set has the same.
#ifndef SINKFLEX_OPS_MOMENT_CODES_H
#define SINKFLEX_OPS_MOMENT_CODES_H

#include <stdint.h>
#include <string.h>

namespace sfx {

constexpr int64_t kMomentBlock = 256;

struct MomentCodes {
  float value[256];      // by code
  float middle[256];     // by rank: from here on the next rank is nearer; infinity for the last
  uint8_t start[16257];  // by the upper half of a float's bits, up to those of 1: the rank of the smallest such float
  int32_t ranks;         // magnitudes: 129 (signed; code 128 + r is minus that of r = 1..127) or 256
};

[[maybe_unused]] static void fill_moment_codes(bool with_sign, MomentCodes* c) {
  constexpr double kDecade[] = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1};
  float rank[256] = {0};
  int32_t ranks = 1;
  for (int i = 0; i < 7; i++) {
    const int count = with_sign ? 1 << i : 2 << i;
    for (int j = 0; j < count; j++)  // middles of equal parts of [0.1, 1]
      rank[ranks++] = (float)(kDecade[i] * (0.1 + 0.9 * (j + 0.5) / count));
  }
  rank[ranks++] = 1;
  c->ranks = ranks;
  for (int32_t r = 0; r < 256; r++) c->value[r] = r < ranks ? rank[r] : 0;
  if (with_sign)
    for (int32_t r = 1; r < 128; r++) c->value[128 + r] = -rank[r];
  for (int32_t r = 0; r < 256; r++)
    c->middle[r] = r + 1 < ranks ? (float)(((double)rank[r] + rank[r + 1]) / 2) : __builtin_inff();
  int32_t r = 0;
  for (uint32_t upper = 0; upper <= 0x3f80; upper++) {
    const uint32_t bits = upper << 16;
    float low;
    memcpy(&low, &bits, 4);
    while (low >= c->middle[r]) r++;
    c->start[upper] = (uint8_t)r;
  }
}

// Made once.
const MomentCodes& moment_codes(bool with_sign);

}  // namespace sfx
#endif
