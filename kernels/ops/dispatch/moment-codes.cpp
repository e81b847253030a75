#include "../moment-codes.h"

#include <string.h>

namespace sfx {

namespace {

constexpr double kDecade[] = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1};

void fill(bool with_sign, MomentCodes* c) {
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

struct Both {
  MomentCodes squares, with_sign;
  Both() { fill(false, &squares), fill(true, &with_sign); }
};

}  // namespace

const MomentCodes& moment_codes(bool with_sign) {
  static const Both both;
  return with_sign ? both.with_sign : both.squares;
}

}  // namespace sfx
