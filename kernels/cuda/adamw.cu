// AdamW, a thread a parameter; scaling and adding arrays; and the float64 sum of squares that clipping needs, in two
// stages of a fixed shape.
#include "intrinsics.cuh"
#include "operators.h"
#include "reduce.cuh"

namespace sfx::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int64_t kChunk = 4096;  // elements of one partial sum

__global__ void __launch_bounds__(kThreads) adamw_kernel(const float* p_in, const float* g, float* m, float* v,
                                                         int64_t count, const sfx_adamw_options o, float* p_out) {
  const int64_t i = (int64_t)blockIdx.x * kThreads + threadIdx.x;
  if (i >= count) return;
  const float grad = g[i] * o.grad_scale;
  const float mean = fmaf(o.beta1, m[i], (1.0f - o.beta1) * grad);
  const float square = fmaf(o.beta2, v[i], (1.0f - o.beta2) * (grad * grad));
  m[i] = mean, v[i] = square;
  const float update = mean / o.bias_correction1 / (sqrtf(square / o.bias_correction2) + o.eps);
  p_out[i] = fmaf(-o.lr, update, (1.0f - o.lr * o.weight_decay) * p_in[i]);
}

__global__ void __launch_bounds__(kThreads) scale_kernel(float* x, int64_t count, float factor) {
  const int64_t i = (int64_t)blockIdx.x * kThreads + threadIdx.x;
  if (i < count) x[i] *= factor;
}

__global__ void __launch_bounds__(kThreads) add_kernel(const float* from, int64_t count, float* to) {
  const int64_t i = (int64_t)blockIdx.x * kThreads + threadIdx.x;
  if (i < count) to[i] += from[i];
}

__global__ void __launch_bounds__(kThreads) squares_kernel(const float* g, int64_t count, double* part) {
  double* const each = reinterpret_cast<double*>(shared_memory());
  const int64_t begin = blockIdx.x * kChunk, end = begin + kChunk < count ? begin + kChunk : count;
  double sum = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) sum += (double)g[i] * (double)g[i];
  sum = block_sum(sum, each);
  if (threadIdx.x == 0) part[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads) total_kernel(const double* part, int64_t count, double* total) {
  double* const each = reinterpret_cast<double*>(shared_memory());
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kThreads) sum += part[i];
  sum = block_sum(sum, each);
  if (threadIdx.x == 0) *total = sum;
}

}  // namespace

int32_t adamw(sfx_stream* stream, const float* p_in, const float* g, float* m, float* v, int64_t count,
              const sfx_adamw_options* o, float* p_out) {
  return SFX_LAUNCH(stream, adamw_kernel, grid(pieces(count, kThreads)), kThreads, 0, p_in, g, m, v, count, *o, p_out);
}

int32_t scale(sfx_stream* stream, float* x, int64_t count, float factor) {
  if (factor == 1.0f) return SFX_OK;
  return SFX_LAUNCH(stream, scale_kernel, grid(pieces(count, kThreads)), kThreads, 0, x, count, factor);
}

int32_t add(sfx_stream* stream, const float* from, int64_t count, float* to) {
  return SFX_LAUNCH(stream, add_kernel, grid(pieces(count, kThreads)), kThreads, 0, from, count, to);
}

int32_t sum_squares(sfx_stream* stream, const float* g, int64_t count, double* sum) {
  *sum = 0;
  if (count == 0) return SFX_OK;
  Scratch scratch(stream);
  const int64_t chunks = pieces(count, kChunk);
  double *const part = scratch.take<double>(chunks), *const total = scratch.take<double>(1);
  SFX_TRY(scratch.status());
  SFX_TRY(SFX_LAUNCH(stream, squares_kernel, grid(chunks), kThreads, kThreads * sizeof(double), g, count, part));
  SFX_TRY(SFX_LAUNCH(stream, total_kernel, grid(1), kThreads, kThreads * sizeof(double), part, chunks, total));
  return copy(stream, sum, total, sizeof(double));
}

}  // namespace sfx::cuda
