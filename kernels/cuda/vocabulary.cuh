// The distribution over the vocabulary that training and sampling share bit for bit. Logits exist for some rows at a
// time, never for all; a block has a row.
#ifndef SINKFLEX_CUDA_VOCABULARY_CUH
#define SINKFLEX_CUDA_VOCABULARY_CUH

#include "operators.h"
#include "products.cuh"
#include "reduce.cuh"

namespace sfx::cuda {

constexpr int kRowThreads = 256;

// m = max z, l = sum exp(z - m), u = sum exp(z - m) (z - m)
struct RowSum {
  float m, l, u;
  SFX_DEVICE float lse() const { return m + logf(l); }
  SFX_DEVICE float entropy() const { return logf(l) - u / l; }
};

// exp(z - m) (z - m) without 0 * inf
SFX_DEVICE float weighed(float d) { return expf(d) * fmaxf(d, -200.0f); }

// Of one row, which the block reads together. `each`: 32 floats of shared memory.
SFX_DEVICE RowSum sum_row(const float* z, int64_t vocabulary, float* each) {
  RowSum s = {-SFX_INFINITE, 0.0f, 0.0f};
  for (int64_t v = threadIdx.x; v < vocabulary; v += kRowThreads) s.m = fmaxf(s.m, z[v]);
  s.m = block_max(s.m, each);
  for (int64_t v = threadIdx.x; v < vocabulary; v += kRowThreads) {
    const float d = z[v] - s.m;
    s.l += expf(d), s.u += weighed(d);
  }
  s.l = block_sum(s.l, each), s.u = block_sum(s.u, each);
  return s;
}
// The only place where a temperature meets a logit.
SFX_DEVICE void scale_row(float* z, int64_t vocabulary, float inverse) {
  if (inverse != 1.0f)
    for (int64_t v = threadIdx.x; v < vocabulary; v += kRowThreads) z[v] *= inverse;
  __syncthreads();
}

inline float inverse_temperature(float temperature) { return temperature > 0.0f ? 1.0f / temperature : 1.0f; }

// logits[rows, V] = hidden w^T, unscaled.
inline int32_t multiply_logits(sfx_stream* stream, const float* hidden, int64_t stride, int64_t rows,
                               const sfx_tensor* w, float* logits) {
  return multiply(stream, {rows, w->shape[0], w->shape[1], matrix(hidden, stride, 1), matrix_of(w, 0, true), logits,
                           w->shape[0], 1, false, false, nullptr});
}

}  // namespace sfx::cuda
#endif
