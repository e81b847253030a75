// Matrices in MXFP4 (backend.h), widened sixteen values at a time. A value is an E2M1 code times a power of two, which
// float32 holds exactly, so that products give the bits of the matrix widened beforehand.
#ifndef SINKFLEX_OPS_MXFP4_H
#define SINKFLEX_OPS_MXFP4_H

#include "../backend.h"
#include "v16.h"

namespace SFX_NS {

// Elements from number `at` on; NULL blocks: none.
struct Mxfp4 {
  const uint8_t *blocks, *scales;
  int64_t at;
};

SFX_INLINE Mxfp4 mxfp4_of(const sfx_tensor* t, int64_t at) {
  int64_t count = 1;
  for (int32_t d = 0; d < t->rank; d++) count *= t->shape[d];
  const uint8_t* const blocks = static_cast<const uint8_t*>(t->data);
  return {blocks, blocks + count / 2, at};
}

// E8M0: 2^(code - 127), the lowest of them subnormal; 255 is not a number.
SFX_INLINE float mxfp4_scale(uint8_t code) {
  const uint32_t bits = code == 0 ? 0x00400000u : code == 255 ? 0x7fc00000u : (uint32_t)code << 23;
  float scale;
  memcpy(&scale, &bits, sizeof scale);
  return scale;
}

// Elements at + i .. at + i + 15 of one row; at + i is a multiple of 16.
SFX_INLINE v16 load_mxfp4(const Mxfp4& w, int64_t i) {
  const int64_t at = w.at + i;
  return mul(load_e2m1(w.blocks + at / 2), set1(mxfp4_scale(w.scales[at / 32])));
}

}  // namespace SFX_NS
#endif
