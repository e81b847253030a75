// AdamW with decoupled decay: g' = grad_scale g; m = b1 m + (1-b1) g'; v = b2 v + (1-b2) g'^2;
// p_out = p (1 - lr wd) - lr (m / c1) / (sqrt(v / c2) + eps). And the float64 sum of squares that clipping needs.
// Bytes bound: 16 read, 12 written a parameter.
#include "operation.h"
#include "operators.h"
#include "v16.h"

namespace SFX_NS {

int32_t adamw(sfx_stream* s, const float* p_in, const float* g, float* m, float* v, int64_t count,
              const sfx_adamw_options* o, float* p_out) {
  const Operation op(s);
  const v16 b1 = set1(o->beta1), b2 = set1(o->beta2), n1 = set1(1.0f - o->beta1), n2 = set1(1.0f - o->beta2);
  const v16 keep = set1(1.0f - o->lr * o->weight_decay), scale = set1(o->grad_scale), eps = set1(o->eps);
  const v16 step = set1(-o->lr), c1 = set1(o->bias_correction1), c2 = set1(o->bias_correction2);
  parallel_ranges(s, count, 1024, (double)count / 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += 16) {
      const int64_t left = end - i;
      const v16 grad = mul(load_part(g + i, left), scale);
      const v16 mean = fma(b1, load_part(m + i, left), mul(n1, grad));
      const v16 square = fma(b2, load_part(v + i, left), mul(n2, mul(grad, grad)));
      store_part(m + i, mean, left);
      store_part(v + i, square, left);
      const v16 update = div(div(mean, c1), add(sqrt(div(square, c2)), eps));
      store_part(p_out + i, fma(step, update, mul(keep, load_part(p_in + i, left))), left);
    }
  });
  return SFX_OK;
}

int32_t scale(sfx_stream* s, float* x, int64_t count, float factor) {
  if (factor == 1.0f) return SFX_OK;
  const Operation op(s);
  const v16 by = set1(factor);
  parallel_ranges(s, count, 1024, (double)count / 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += 16) store_part(x + i, mul(load_part(x + i, end - i), by), end - i);
  });
  return SFX_OK;
}

int32_t add_arrays(sfx_stream* s, const float* from, int64_t count, float* to) {
  const Operation op(s);
  parallel_ranges(s, count, 1024, (double)count / 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += 16)
      store_part(to + i, add(load_part(to + i, end - i), load_part(from + i, end - i)), end - i);
  });
  return SFX_OK;
}

// Sixteen float64 lanes a chunk of 4096 (a float's square is exact in float64), chunks added in ascending order.
int32_t sum_squares(sfx_stream* s, const float* g, int64_t count, double* sum) {
  const Operation op(s);
  constexpr int64_t kChunk = 4096;
  const int64_t chunks = (count + kChunk - 1) / kChunk;
  double* part = op.take<double>(chunks);
  parallel_ranges(s, chunks, 1, (double)count / 8, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; c++) {
      const float* p = g + c * kChunk;
      const int64_t length = least(kChunk, count - c * kChunk);
      double lanes[16] = {};
      int64_t i = 0;
      for (; i + 16 <= length; i += 16)
        for (int l = 0; l < 16; l++) lanes[l] += (double)p[i + l] * (double)p[i + l];
      for (; i < length; i++) lanes[i % 16] += (double)p[i] * (double)p[i];
      for (int w = 8; w > 0; w >>= 1)
        for (int l = 0; l < w; l++) lanes[l] += lanes[l + w];
      part[c] = lanes[0];
    }
  });
  double total = 0;
  for (int64_t c = 0; c < chunks; c++) total += part[c];
  *sum = total;
  return SFX_OK;
}

}  // namespace SFX_NS
