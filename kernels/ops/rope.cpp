// Rotary position embedding on half-split pairs: (a, b) -> (a cos - b sin, b cos + a sin), a = x[j], b = x[j + D/2].
// The backward is the inverse rotation (sin negated) and is exact up to rounding.
#include "operation.h"
#include "operators.h"
#include "v16.h"

namespace SFX_NS {

int32_t rope(sfx_stream* s, sfx_tensor* x, const int32_t* position, const sfx_tensor* cosine, const sfx_tensor* sine,
             int32_t inverse) {
  SFX_CHECK_F32(x, cosine, sine);
  SFX_CHECK(unit_last(x) && unit_last(cosine) && unit_last(sine) && x->rank == 3,
            "rope: x is [n, heads, D] with contiguous rows");
  SFX_CHECK(x->shape[2] % 2 == 0 && cosine->shape[1] >= x->shape[2] / 2, "rope: D must be even and match the tables");
  const Operation op(s);
  const int64_t n = x->shape[0], heads = x->shape[1], half = x->shape[2] / 2;
  const v16 sign = set1(inverse ? -1.0f : 1.0f);
  parallel_ranges(s, n, 1, (double)n * heads * half / 8, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++) {
      const float *c = data(cosine) + position[r] * cosine->stride[0], *d = data(sine) + position[r] * sine->stride[0];
      for (int64_t h = 0; h < heads; h++) {
        float* p = data(x) + r * x->stride[0] + h * x->stride[1];
        for (int64_t j = 0; j < half; j += 16) {
          const int64_t left = half - j;
          const v16 a = load_part(p + j, left), b = load_part(p + half + j, left);
          const v16 cs = load_part(c + j, left), sn = mul(sign, load_part(d + j, left));
          store_part(p + j, fma(negate(b), sn, mul(a, cs)), left);
          store_part(p + half + j, fma(a, sn, mul(b, cs)), left);
        }
      }
    }
  });
  return SFX_OK;
}

}  // namespace SFX_NS
