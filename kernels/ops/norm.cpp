// RMSNorm. y = x rstd w, rstd = 1 / sqrt(mean(x^2) + eps).
// Backward with g = dy w, xhat = x rstd: dx += rstd (g - xhat mean(g xhat)); dw += dy xhat, chained over rows.
// Row sums: 16 lanes, one fma chain a lane, then the fixed tree. Bytes bound: 2 reads and 1 write a float forward.
#include "elementary.h"
#include "operation.h"
#include "operators.h"

namespace SFX_NS {

int32_t rms_norm_forward(sfx_stream* s, const sfx_tensor* x, const sfx_tensor* w, float eps, sfx_tensor* y,
                         float* rstd) {
  SFX_CHECK_F32(x, w, y);
  SFX_CHECK(unit_last(x) && unit_last(y), "rms_norm: rows must be contiguous");
  const Operation op(s);
  const int64_t n = x->shape[0], h = x->shape[1];
  const float* weight = data(w);
  parallel_ranges(s, n, 1, (double)n * h / 5, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++) {
      const float* in = data(x) + r * x->stride[0];
      float* out = data(y) + r * y->stride[0];
      v16 sum = zero();
      for (int64_t j = 0; j < h; j += 16) {
        const v16 a = load_part(in + j, h - j);
        sum = fma(a, a, sum);
      }
      const v16 scale = div(set1(1.0f), sqrt(set1(sum_lanes(sum) / (float)h + eps)));
      for (int64_t j = 0; j < h; j += 16)
        store_part(out + j, mul(mul(load_part(in + j, h - j), scale), load_part(weight + j, h - j)), h - j);
      if (rstd) rstd[r] = first_lane(scale);
    }
  });
  return SFX_OK;
}

int32_t rms_norm_backward(sfx_stream* s, const sfx_tensor* dy, const sfx_tensor* x, const sfx_tensor* w,
                          const float* rstd, sfx_tensor* dx, sfx_tensor* dw) {
  SFX_CHECK_F32(dy, x, w, dx, dw);
  SFX_CHECK(unit_last(dy) && unit_last(x) && unit_last(dx), "rms_norm: rows must be contiguous");
  const Operation op(s);
  const int64_t n = x->shape[0], h = x->shape[1];
  const float* weight = data(w);
  if (dx)
    parallel_ranges(s, n, 1, (double)n * h / 5, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; r++) {
        const float *in = data(x) + r * x->stride[0], *g = data(dy) + r * dy->stride[0];
        float* out = data(dx) + r * dx->stride[0];
        const v16 scale = set1(rstd[r]);
        v16 sum = zero();
        for (int64_t j = 0; j < h; j += 16)
          sum = fma(mul(load_part(g + j, h - j), load_part(weight + j, h - j)), mul(load_part(in + j, h - j), scale),
                    sum);
        const v16 mean = set1(sum_lanes(sum) / (float)h);
        for (int64_t j = 0; j < h; j += 16) {
          const v16 gw = mul(load_part(g + j, h - j), load_part(weight + j, h - j));
          const v16 xhat = mul(load_part(in + j, h - j), scale);
          store_part(out + j, fma(scale, sub(gw, mul(xhat, mean)), load_part(out + j, h - j)), h - j);
        }
      }
    });
  if (dw)
    parallel_ranges(s, h, 16, (double)n * h / 5, [&](int64_t begin, int64_t end) {
      float* sum = data(dw);
      for (int64_t r = 0; r < n; r++) {
        const float *in = data(x) + r * x->stride[0], *g = data(dy) + r * dy->stride[0];
        const v16 scale = set1(rstd[r]);
        for (int64_t j = begin; j < end; j += 16)
          store_part(
              sum + j,
              fma(load_part(g + j, end - j), mul(load_part(in + j, end - j), scale), load_part(sum + j, end - j)),
              end - j);
      }
    });
  return SFX_OK;
}

}  // namespace SFX_NS
