// Top-k routing, a warp a token. The k largest logits in descending order (ties to the lower id), weight = softmax over
// them. Backward: dlogit_j = weight_j (dweight_j - sum_i weight_i dweight_i) for the chosen, 0 elsewhere; exactly 0 for
// k = 1.
#include "operators.h"
#include "reduce.cuh"

namespace sfx::cuda {

namespace {

constexpr int kThreads = 128, kRows = kThreads / kWarpSize, kMostChoices = 16;

struct RouterArguments {
  const float* logits;
  int64_t n, stride;
  int32_t experts, top_k;
  bool replay;
  int32_t* index;
  float* weight;
};

__global__ void __launch_bounds__(kThreads) router_forward_kernel(const RouterArguments a) {
  const int lane = threadIdx.x % kWarpSize;
  const int64_t row = (int64_t)blockIdx.x * kRows + threadIdx.x / kWarpSize;
  if (row >= a.n) return;
  const float* const logits = a.logits + row * a.stride;
  int32_t* const index = a.index + row * a.top_k;
  float mine = -SFX_INFINITE;  // the logit of choice `lane`
  if (a.replay && index[0] >= 0) {
    if (lane < a.top_k) mine = logits[index[lane]];
  } else {
    __syncwarp();  // index[0] was read by all lanes
    Best last = {SFX_INFINITE, -1};
    for (int choice = 0; choice < a.top_k; choice++) {
      // The best of those that come after the last one chosen.
      Best best = {0.0f, -1};
      for (int e = lane; e < a.experts; e += kWarpSize) {
        const float x = logits[e];
        if (x < last.value || (x == last.value && e > last.id)) best = better(best, {x, e});
      }
      last = warp_best(best);
      if (last.id < 0) last = {-SFX_INFINITE, choice};  // nothing is comparable: the logits are not finite
      if (lane == choice) mine = last.value, index[choice] = last.id;
    }
  }
  const float top = warp_max(mine), p = lane < a.top_k ? expf(mine - top) : 0.0f, all = warp_sum(p);
  if (lane < a.top_k) a.weight[row * a.top_k + lane] = p / all;
}

__global__ void __launch_bounds__(kThreads)
    router_backward_kernel(const float* dweight, const int32_t* index, const float* weight, int64_t n, int32_t top_k,
                           int32_t experts, float* dlogits, int64_t stride) {
  const int lane = threadIdx.x % kWarpSize;
  const int64_t row = (int64_t)blockIdx.x * kRows + threadIdx.x / kWarpSize;
  if (row >= n) return;
  const bool chosen = lane < top_k;
  const float w = chosen ? weight[row * top_k + lane] : 0.0f, g = chosen ? dweight[row * top_k + lane] : 0.0f;
  const float mean = warp_sum(w * g);
  float* const to = dlogits + row * stride;
  for (int e = lane; e < experts; e += kWarpSize) to[e] = 0.0f;
  __syncwarp();
  if (chosen) to[index[row * top_k + lane]] = top_k == 1 ? 0.0f : w * (g - mean);
}

int32_t check_router(const sfx_tensor* logits, int32_t top_k) {
  SFX_REQUIRE_F32(logits);
  SFX_REQUIRE(top_k >= 1 && top_k <= kMostChoices && top_k <= logits->shape[1],
              "router: top_k must be in 1..16 and at most the number of experts");
  SFX_REQUIRE(unit_last(logits), "router: rows must be contiguous");
  return SFX_OK;
}

int32_t route(sfx_stream* stream, const sfx_tensor* logits, int32_t top_k, bool replay, int32_t* index, float* weight) {
  SFX_TRY(check_router(logits, top_k));
  const RouterArguments a = {
      floats(logits), logits->shape[0], logits->stride[0], (int32_t)logits->shape[1], top_k, replay, index, weight};
  return SFX_LAUNCH(stream, router_forward_kernel, grid(pieces(a.n, kRows)), kThreads, 0, a);
}

}  // namespace

int32_t router_forward(sfx_stream* stream, const sfx_tensor* logits, int32_t top_k, int32_t* index, float* weight) {
  return route(stream, logits, top_k, false, index, weight);
}

int32_t router_replay(sfx_stream* stream, const sfx_tensor* logits, int32_t top_k, int32_t* index, float* weight) {
  return route(stream, logits, top_k, true, index, weight);
}

int32_t router_backward(sfx_stream* stream, const float* dweight, const int32_t* index, const float* weight,
                        int32_t top_k, sfx_tensor* dlogits) {
  SFX_TRY(check_router(dlogits, top_k));
  const int64_t n = dlogits->shape[0];
  return SFX_LAUNCH(stream, router_backward_kernel, grid(pieces(n, kRows)), kThreads, 0, dweight, index, weight, n,
                    top_k, (int32_t)dlogits->shape[1], floats(dlogits), dlogits->stride[0]);
}

}  // namespace sfx::cuda
