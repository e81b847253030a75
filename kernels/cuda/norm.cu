// RMSNorm, also of the heads of q and k. y = x rstd w, rstd = 1 / sqrt(mean(x^2) + eps). Backward with g = dy w, xhat =
// x rstd: dx += rstd (g - xhat mean(g xhat)), a warp a row; dw += dy xhat, chained over rows, a thread a column, so
// that a batch cut in two gives the same bits.
#include "operators.h"
#include "reduce.cuh"

namespace sfx::cuda {

namespace {

constexpr int kThreads = 128, kRows = kThreads / kWarpSize;

struct NormArguments {
  const float *x, *w, *dy, *rstd;
  float *out, *save;  // y or dx; rstd of the forward or NULL
  int64_t n, h, x_row, dy_row, out_row;
  float eps;
};

__global__ void __launch_bounds__(kThreads) norm_forward_kernel(const NormArguments a) {
  const int lane = threadIdx.x % kWarpSize;
  const int64_t row = (int64_t)blockIdx.x * kRows + threadIdx.x / kWarpSize;
  if (row >= a.n) return;
  const float* const x = a.x + row * a.x_row;
  float sum = 0.0f;
  for (int64_t j = lane; j < a.h; j += kWarpSize) sum = fmaf(x[j], x[j], sum);
  const float rstd = 1.0f / sqrtf(warp_sum(sum) / (float)a.h + a.eps);
  for (int64_t j = lane; j < a.h; j += kWarpSize) a.out[row * a.out_row + j] = x[j] * rstd * a.w[j];
  if (a.save && lane == 0) a.save[row] = rstd;
}

__global__ void __launch_bounds__(kThreads) norm_input_kernel(const NormArguments a) {
  const int lane = threadIdx.x % kWarpSize;
  const int64_t row = (int64_t)blockIdx.x * kRows + threadIdx.x / kWarpSize;
  if (row >= a.n) return;
  const float *const x = a.x + row * a.x_row, *const dy = a.dy + row * a.dy_row;
  float* const dx = a.out + row * a.out_row;
  const float rstd = a.rstd[row];
  float sum = 0.0f;
  for (int64_t j = lane; j < a.h; j += kWarpSize) sum = fmaf(dy[j] * a.w[j], x[j] * rstd, sum);
  const float mean = warp_sum(sum) / (float)a.h;
  for (int64_t j = lane; j < a.h; j += kWarpSize) dx[j] = fmaf(rstd, dy[j] * a.w[j] - x[j] * rstd * mean, dx[j]);
}

__global__ void __launch_bounds__(kThreads) norm_weight_kernel(const NormArguments a) {
  const int64_t j = (int64_t)blockIdx.x * kThreads + threadIdx.x;
  if (j >= a.h) return;
  float sum = a.out[j];
#pragma unroll 8
  for (int64_t row = 0; row < a.n; row++)
    sum = fmaf(a.dy[row * a.dy_row + j], a.x[row * a.x_row + j] * a.rstd[row], sum);
  a.out[j] = sum;
}

}  // namespace

int32_t rms_norm_forward(sfx_stream* stream, const sfx_tensor* x, const sfx_tensor* w, float eps, sfx_tensor* y,
                         float* rstd) {
  SFX_REQUIRE_F32(x, w, y);
  SFX_REQUIRE(unit_last(x) && unit_last(y), "rms_norm: rows must be contiguous");
  NormArguments a = {};
  a.x = floats(x), a.w = floats(w), a.out = floats(y), a.save = rstd, a.eps = eps;
  a.n = x->shape[0], a.h = x->shape[1], a.x_row = x->stride[0], a.out_row = y->stride[0];
  return SFX_LAUNCH(stream, norm_forward_kernel, grid(pieces(a.n, kRows)), kThreads, 0, a);
}

int32_t rms_norm_backward(sfx_stream* stream, const sfx_tensor* dy, const sfx_tensor* x, const sfx_tensor* w,
                          const float* rstd, sfx_tensor* dx, sfx_tensor* dw) {
  SFX_REQUIRE_F32(dy, x, w, dx, dw);
  SFX_REQUIRE(unit_last(dy) && unit_last(x) && unit_last(dx), "rms_norm: rows must be contiguous");
  NormArguments a = {};
  a.x = floats(x), a.w = floats(w), a.dy = floats(dy), a.rstd = rstd;
  a.n = x->shape[0], a.h = x->shape[1], a.x_row = x->stride[0], a.dy_row = dy->stride[0];
  if (dx) {
    a.out = floats(dx), a.out_row = dx->stride[0];
    SFX_TRY(SFX_LAUNCH(stream, norm_input_kernel, grid(pieces(a.n, kRows)), kThreads, 0, a));
  }
  if (!dw) return SFX_OK;
  a.out = floats(dw);
  return SFX_LAUNCH(stream, norm_weight_kernel, grid(pieces(a.h, kThreads)), kThreads, 0, a);
}

}  // namespace sfx::cuda
