// Sixteen virtual float lanes, the same on every instruction set: one zmm, two ymm, four NEON registers or an array.
// Kernels are written once over these functions; each is exactly one IEEE operation a lane, so results agree bit for
// bit.
#ifndef SINKFLEX_OPS_V16_H
#define SINKFLEX_OPS_V16_H

#include <stdint.h>
#include <string.h>

#include "isa.h"

#if defined(SFX_ISA_AVX512)
#include "v16-avx512.h"
#elif defined(SFX_ISA_AVX2)
#include "v16-avx2.h"
#elif defined(SFX_ISA_NEON)
#include "v16-neon.h"
#else
#include "v16-portable.h"
#endif

namespace SFX_NS {

SFX_INLINE v16 zero() { return set1(0.0f); }
SFX_INLINE v16 negate(v16 a) { return sub(set1(-0.0f), a); }
SFX_INLINE v16 load_part(const float* p, int64_t n) { return n >= 16 ? load(p) : load_n(p, (int)n); }
SFX_INLINE v16 load_bf16_part(const uint16_t* p, int64_t n) {
  if (n >= 16) return load_bf16(p);
  uint16_t lanes[16] = {};
  for (int64_t i = 0; i < n; i++) lanes[i] = p[i];
  return load_bf16(lanes);
}
SFX_INLINE void store_part(float* p, v16 v, int64_t n) {
  if (n >= 16)
    store(p, v);
  else
    store_n(p, v, (int)n);
}
SFX_INLINE v16 iota() {
  static const float lanes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return load(lanes);
}
SFX_INLINE float first_lane(v16 v) {
  float lanes[16];
  store(lanes, v);
  return lanes[0];
}

}  // namespace SFX_NS
#endif
