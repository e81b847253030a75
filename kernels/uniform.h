// The uniform number that a token is drawn with, for every backend: counter-based, so a function of key and position
// alone.
#ifndef SINKFLEX_UNIFORM_H
#define SINKFLEX_UNIFORM_H

#include "backend.h"

namespace sfx {

// Philox-4x32-10 under key[0..1], counter (key[2..3], position): Salmon et al., "Parallel random numbers: as easy as 1,
// 2, 3" (2011). [0, 1)
[[maybe_unused]] static double uniform(const sfx_sample_options& o) {
  uint32_t k0 = o.key[0], k1 = o.key[1], c0 = o.key[2], c1 = o.key[3], c2 = o.position, c3 = 0;
  for (int round = 0; round < 10; round++) {
    const uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
    c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
    c1 = (uint32_t)b;
    c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
    c3 = (uint32_t)a;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return (double)(((uint64_t)c0 << 21) | (c1 >> 11)) * 0x1p-53;
}

}  // namespace sfx
#endif
