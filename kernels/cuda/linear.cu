// y = x w^T + b (+ y);   dx = dy w (+ dx);   dw += dy^T x, db += column sums: products, and chains over tokens.
#include "intrinsics.cuh"
#include "operators.h"
#include "products.cuh"

namespace sfx::cuda {

namespace {

constexpr int kThreads = 128;

// sum[j] += x[0,j] + x[1,j] + ..., a thread a column.
__global__ void __launch_bounds__(kThreads)
    column_sums_kernel(const float* x, int64_t stride, int64_t rows, int64_t columns, float* to) {
  const int64_t j = (int64_t)blockIdx.x * kThreads + threadIdx.x;
  if (j >= columns) return;
  float sum = to[j];
#pragma unroll 8
  for (int64_t i = 0; i < rows; i++) sum += x[i * stride + j];
  to[j] = sum;
}

}  // namespace

int32_t linear_forward(sfx_stream* stream, const sfx_tensor* x, const sfx_tensor* w, const sfx_tensor* bias,
                       int32_t accumulate, sfx_tensor* y) {
  SFX_REQUIRE_F32(bias, y);
  SFX_REQUIRE(x->shape[1] == w->shape[1] && y->shape[1] == w->shape[0] && x->shape[0] == y->shape[0],
              "linear: x [n,M], w [N,M], y [n,N] disagree");
  SFX_REQUIRE(unit_last(x) && unit_last(y), "linear: rows of x and y must be contiguous");
  return multiply(stream, {x->shape[0], w->shape[0], w->shape[1], matrix_of(x), matrix_of(w, 0, true), floats(y),
                           y->stride[0], 1, false, accumulate != 0, bias ? floats(bias) : nullptr});
}

int32_t linear_backward_input(sfx_stream* stream, const sfx_tensor* dy, const sfx_tensor* w, int32_t accumulate,
                              sfx_tensor* dx) {
  SFX_REQUIRE_F32(dx);
  SFX_REQUIRE(dy->shape[1] == w->shape[0] && dx->shape[1] == w->shape[1] && dx->shape[0] == dy->shape[0],
              "linear: dy [n,N], w [N,M], dx [n,M] disagree");
  SFX_REQUIRE(unit_last(dy) && unit_last(dx), "linear: rows of dy and dx must be contiguous");
  return multiply(stream, {dy->shape[0], w->shape[1], w->shape[0], matrix_of(dy), matrix_of(w), floats(dx),
                           dx->stride[0], 1, false, accumulate != 0, nullptr});
}

int32_t linear_backward_weight(sfx_stream* stream, const sfx_tensor* dy, const sfx_tensor* x, sfx_tensor* dw,
                               sfx_tensor* dbias) {
  SFX_REQUIRE_F32(dw, dbias);
  SFX_REQUIRE(dw->shape[0] == dy->shape[1] && dw->shape[1] == x->shape[1] && dy->shape[0] == x->shape[0],
              "linear: dy [n,N], x [n,M], dw [N,M] disagree");
  SFX_REQUIRE(unit_last(dy) && unit_last(x), "linear: rows of dy and x must be contiguous");
  const int64_t n = dy->shape[0], out = dy->shape[1];
  SFX_TRY(multiply(stream, {out, x->shape[1], n, matrix_of(dy, 0, true), matrix_of(x), floats(dw), dw->stride[0],
                            dw->stride[1], true, false, nullptr}));
  if (!dbias) return SFX_OK;
  SFX_REQUIRE_F32(dy);
  return SFX_LAUNCH(stream, column_sums_kernel, grid(pieces(out, kThreads)), kThreads, 0, floats(dy), dy->stride[0], n,
                    out, floats(dbias));
}

}  // namespace sfx::cuda
