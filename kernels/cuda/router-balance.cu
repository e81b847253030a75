// What the load-balancing loss needs: how often each expert was chosen and the sum of the router's full softmax, in
// float64 chains over blocks of 256 tokens, then over the blocks; and the gradient of the loss.
#include "operators.h"
#include "reduce.cuh"

namespace sfx::cuda {

namespace {

constexpr int kThreads = 128, kRows = kThreads / kWarpSize, kTogether = 256;

// The softmax of a row is exp(x - top) / all.
struct RowSoftmax {
  float top, all;
};
SFX_DEVICE RowSoftmax softmax_of(const float* logits, int experts, int lane) {
  float top = -SFX_INFINITE, all = 0.0f;
  for (int e = lane; e < experts; e += kWarpSize) top = fmaxf(top, logits[e]);
  top = warp_max(top);
  for (int e = lane; e < experts; e += kWarpSize) all += expf(logits[e] - top);
  return {top, warp_sum(all)};
}

__global__ void __launch_bounds__(kThreads)
    balance_rows_kernel(const float* logits, int64_t n, int64_t stride, int32_t experts, RowSoftmax* rows) {
  const int64_t row = (int64_t)blockIdx.x * kRows + threadIdx.x / kWarpSize;
  if (row >= n) return;
  const RowSoftmax s = softmax_of(logits + row * stride, experts, threadIdx.x % kWarpSize);
  if (threadIdx.x % kWarpSize == 0) rows[row] = s;
}

// parts[block][2][experts]: choices and probabilities of a block of tokens. A thread an expert.
__global__ void __launch_bounds__(kThreads)
    balance_parts_kernel(const float* logits, int64_t n, int64_t stride, int32_t experts, const RowSoftmax* rows,
                         const int32_t* index, int32_t top_k, double* parts) {
  const int64_t begin = (int64_t)blockIdx.x * kTogether, end = begin + kTogether < n ? begin + kTogether : n;
  for (int e = threadIdx.x; e < experts; e += kThreads) {
    int count = 0;
    double sum = 0;
    for (int64_t row = begin; row < end; row++) {
      sum += (double)(expf(logits[row * stride + e] - rows[row].top) / rows[row].all);
      for (int j = 0; j < top_k; j++) count += index[row * top_k + j] == e;
    }
    parts[2 * blockIdx.x * (int64_t)experts + e] = count;
    parts[(2 * blockIdx.x + 1) * (int64_t)experts + e] = sum;
  }
}

__global__ void __launch_bounds__(kThreads)
    balance_sums_kernel(const double* parts, int64_t blocks, int32_t experts, double* sums) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= 2 * experts) return;
  double sum = sums[i];
  for (int64_t b = 0; b < blocks; b++) sum += parts[2 * b * experts + i];
  sums[i] = sum;
}

__global__ void __launch_bounds__(kThreads)
    balance_backward_kernel(const float* logits, int64_t n, int64_t stride, int32_t experts, const float* load,
                            float factor, float* dlogits, int64_t dstride) {
  const int lane = threadIdx.x % kWarpSize;
  const int64_t row = (int64_t)blockIdx.x * kRows + threadIdx.x / kWarpSize;
  if (row >= n) return;
  const float* const x = logits + row * stride;
  const RowSoftmax s = softmax_of(x, experts, lane);
  float mean = 0.0f;
  for (int e = lane; e < experts; e += kWarpSize) mean = fmaf(expf(x[e] - s.top) / s.all, load[e], mean);
  mean = warp_sum(mean);
  for (int e = lane; e < experts; e += kWarpSize)
    dlogits[row * dstride + e] += factor * (expf(x[e] - s.top) / s.all) * (load[e] - mean);
}

}  // namespace

int32_t router_balance(sfx_stream* stream, const sfx_tensor* logits, const int32_t* index, int32_t top_k,
                       double* sums) {
  SFX_REQUIRE_F32(logits);
  SFX_REQUIRE(unit_last(logits), "router: rows must be contiguous");
  const int64_t n = logits->shape[0], blocks = pieces(n, kTogether);
  const int32_t experts = (int32_t)logits->shape[1];
  Scratch scratch(stream);
  RowSoftmax* const rows = scratch.take<RowSoftmax>(n);
  double* const parts = scratch.take<double>(2 * blocks * experts);
  SFX_TRY(scratch.status());
  SFX_TRY(SFX_LAUNCH(stream, balance_rows_kernel, grid(pieces(n, kRows)), kThreads, 0, floats(logits), n,
                     logits->stride[0], experts, rows));
  SFX_TRY(SFX_LAUNCH(stream, balance_parts_kernel, grid(blocks), kThreads, 0, floats(logits), n, logits->stride[0],
                     experts, rows, index, top_k, parts));
  return SFX_LAUNCH(stream, balance_sums_kernel, grid(pieces(2 * experts, kThreads)), kThreads, 0, parts, blocks,
                    experts, sums);
}

int32_t router_balance_backward(sfx_stream* stream, const sfx_tensor* logits, const float* load, float factor,
                                sfx_tensor* dlogits) {
  SFX_REQUIRE_F32(logits, dlogits);
  SFX_REQUIRE(unit_last(logits) && unit_last(dlogits), "router: rows must be contiguous");
  const int64_t n = logits->shape[0];
  return SFX_LAUNCH(stream, balance_backward_kernel, grid(pieces(n, kRows)), kThreads, 0, floats(logits), n,
                    logits->stride[0], (int32_t)logits->shape[1], load, factor, floats(dlogits), dlogits->stride[0]);
}

}  // namespace sfx::cuda
