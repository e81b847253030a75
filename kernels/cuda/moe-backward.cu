// Mixture of experts, backward. With dh = dy W2^T (a pair's derivative before its weight): dweight = sum_i dh_i act_i +
// sum_c dy_c b2_c; dact = weight dh; d(gate, up) through the clamped SwiGLU (0 outside the clamp); dx += dgu W1^T over
// experts in ascending id; dW1 += x^T dgu, dW2 += (weight act)^T dy, db2 += weight dy, all chained over tokens.
#include "moe.cuh"
#include "reduce.cuh"
#include "rows.cuh"

namespace sfx::cuda {

namespace {

constexpr int kThreads = 128, kRows = kThreads / kWarpSize;

struct PairArguments {
  const float *gate_up, *dh, *dys, *weight, *bias;  // bias: of the down products, or NULL
  float *act, *dgu, *dweight;                       // out: weight * act, d(gate, up); dweight or NULL
  const int32_t *order, *index;
  int64_t pairs, width, hidden, bias_row;
  float limit;
};

// A warp a pair.
__global__ void __launch_bounds__(kThreads) pair_backward_kernel(const PairArguments a) {
  const int lane = threadIdx.x % kWarpSize;
  const int64_t p = (int64_t)blockIdx.x * kRows + threadIdx.x / kWarpSize;
  if (p >= a.pairs) return;
  const int32_t pair = a.order[p];
  const float weight = a.weight[pair];
  float dot = 0.0f;
  for (int64_t j = lane; j < a.width; j += kWarpSize) {
    const int64_t at = p * a.width + j;
    const float raw_gate = a.gate_up[2 * at], raw_up = a.gate_up[2 * at + 1];
    const float gate = fminf(raw_gate, a.limit), up = fmaxf(fminf(raw_up, a.limit), -a.limit);
    const float s = 1.0f / (1.0f + expf(-1.702f * gate)), g = gate * s, act = (up + 1.0f) * g;
    const float dh = a.dh[at], dact = weight * dh;
    dot = fmaf(dh, act, dot);
    a.act[at] = weight * act;
    a.dgu[2 * at] = raw_gate > a.limit ? 0.0f : dact * (up + 1.0f) * (s * fmaf(1.702f * gate, 1.0f - s, 1.0f));
    a.dgu[2 * at + 1] = raw_up > a.limit || raw_up < -a.limit ? 0.0f : dact * g;
  }
  if (!a.dweight) return;
  if (a.bias) {
    const float* const bias = a.bias + a.index[pair] * a.bias_row;
    for (int64_t j = lane; j < a.hidden; j += kWarpSize) dot = fmaf(a.dys[p * a.hidden + j], bias[j], dot);
  }
  dot = warp_sum(dot);
  if (lane == 0) a.dweight[pair] = dot;
}

// to[e] += sum over the pairs of e of weight * rows, a thread a column; weight NULL: 1.
__global__ void __launch_bounds__(kThreads)
    expert_sums_kernel(const float* rows, const float* weight, const int32_t* order, const int32_t* first,
                       int64_t width, float* to, int64_t stride) {
  const int64_t j = (int64_t)blockIdx.x * kThreads + threadIdx.x;
  if (j >= width) return;
  float sum = to[blockIdx.y * stride + j];
#pragma unroll 4
  for (int p = first[blockIdx.y]; p < first[blockIdx.y + 1]; p++)
    sum = fmaf(weight ? weight[order[p]] : 1.0f, rows[p * width + j], sum);
  to[blockIdx.y * stride + j] = sum;
}

int32_t add_expert_sums(sfx_stream* stream, const SortedPairs& r, const float* rows, const float* weight,
                        sfx_tensor* to) {
  if (!to) return SFX_OK;
  return SFX_LAUNCH(stream, expert_sums_kernel, grid(pieces(to->shape[1], kThreads), to->shape[0]), kThreads, 0, rows,
                    weight, r.order, r.first, to->shape[1], floats(to), to->stride[0]);
}

}  // namespace

int32_t moe_backward(sfx_stream* stream, const sfx_tensor* dy, const sfx_tensor* x, const int32_t* index,
                     const float* weight, int32_t top_k, const sfx_tensor* gate_up, const sfx_tensor* gate_up_bias,
                     const sfx_tensor* down, const sfx_tensor* down_bias, float limit, const void* saved,
                     sfx_tensor* dx, float* dweight, sfx_tensor* dgate_up, sfx_tensor* dgate_up_bias, sfx_tensor* ddown,
                     sfx_tensor* ddown_bias) {
  return moe_adapted_backward(stream, dy, x, index, weight, top_k, gate_up, gate_up_bias, down, down_bias, limit, saved,
                              dx, dweight, dgate_up, dgate_up_bias, ddown, ddown_bias, nullptr);
}

int32_t moe_adapted_backward(sfx_stream* stream, const sfx_tensor* dy, const sfx_tensor* x, const int32_t* index,
                             const float* weight, int32_t top_k, const sfx_tensor* gate_up,
                             const sfx_tensor* gate_up_bias, const sfx_tensor* down, const sfx_tensor* down_bias,
                             float limit, const void* saved, sfx_tensor* dx, float* dweight, sfx_tensor* dgate_up,
                             sfx_tensor* dgate_up_bias, sfx_tensor* ddown, sfx_tensor* ddown_bias,
                             const sfx_moe_adapters* lora) {
  SFX_TRY(check_experts(x, gate_up, gate_up_bias, down, down_bias, top_k));
  SFX_REQUIRE_F32(dy, dx, dgate_up, dgate_up_bias, ddown, ddown_bias);
  SFX_REQUIRE(unit_last(dy) && unit_last(dx), "moe: rows must be contiguous");
  SFX_REQUIRE(saved != nullptr, "moe: the backward needs what the forward saved");
  Scratch scratch(stream);
  const int64_t n = x->shape[0], h = x->shape[1], experts = gate_up->shape[0], I = down->shape[1];
  SortedPairs r;
  SFX_TRY(sort_pairs(scratch, index, n, top_k, experts, &r));
  float *const xs = scratch.take<float>(r.pairs * h), *const dys = scratch.take<float>(r.pairs * h),
               *const dxs = dx ? scratch.take<float>(r.pairs * h) : nullptr;
  float *const dh = scratch.take<float>(r.pairs * I), *const act = scratch.take<float>(r.pairs * I),
               *const dgu = scratch.take<float>(r.pairs * 2 * I);
  const ExpertAdapters adapters = expert_adapters(scratch, lora, r.pairs, experts, h, I);
  SFX_TRY(scratch.status());
  SFX_TRY(gather_rows(stream, floats(x), x->stride[0], r.order, top_k, r.pairs, h, xs));
  SFX_TRY(gather_rows(stream, floats(dy), dy->stride[0], r.order, top_k, r.pairs, h, dys));
  SFX_TRY(multiply_experts(stream, r, dys, down, true, nullptr, dh));
  SFX_TRY(adapters.down.add_backward(stream, r, dys, dh));
  const PairArguments a = {static_cast<const float*>(saved),
                           dh,
                           dys,
                           weight,
                           down_bias ? floats(down_bias) : nullptr,
                           act,
                           dgu,
                           dweight,
                           r.order,
                           index,
                           r.pairs,
                           I,
                           h,
                           down_bias ? down_bias->stride[0] : 0,
                           limit};
  SFX_TRY(SFX_LAUNCH(stream, pair_backward_kernel, grid(pieces(r.pairs, kRows)), kThreads, 0, a));
  if (dx) SFX_TRY(multiply_experts(stream, r, dgu, gate_up, true, nullptr, dxs));
  SFX_TRY(adapters.up.add_backward(stream, r, dgu, dxs));
  if (dx) SFX_TRY(combine_pairs(stream, r, dxs, nullptr, n, top_k, dx));
  if (dgate_up) SFX_TRY(multiply_gradients(stream, r, xs, dgu, dgate_up));
  if (ddown) SFX_TRY(multiply_gradients(stream, r, act, dys, ddown));
  SFX_TRY(adapters.up.add_gradients(stream, r, xs, dgu));
  SFX_TRY(adapters.down.add_gradients(stream, r, act, dys));
  SFX_TRY(add_expert_sums(stream, r, dgu, nullptr, dgate_up_bias));
  return add_expert_sums(stream, r, dys, weight, ddown_bias);
}

}  // namespace sfx::cuda
