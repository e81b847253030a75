// Mixture of experts with gpt-oss's clamped SwiGLU, forward. (gate, up) = x W1 + b1 interleaved; gate = min(gate,
// limit), up = clamp(up, +-limit); act = (up + 1) gate sigmoid(1.702 gate); y += sum over the chosen experts in
// ascending id of weight (act W2 + b2).
#include "intrinsics.cuh"
#include "moe.cuh"
#include "rows.cuh"

namespace sfx::cuda {

namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    clamped_swiglu_kernel(const float* gate_up, int64_t count, float limit, float* act) {
  const int64_t i = (int64_t)blockIdx.x * kThreads + threadIdx.x;
  if (i >= count) return;
  const float gate = fminf(gate_up[2 * i], limit), up = fmaxf(fminf(gate_up[2 * i + 1], limit), -limit);
  act[i] = (up + 1.0f) * (gate / (1.0f + expf(-1.702f * gate)));
}

}  // namespace

int64_t moe_saved_bytes(int64_t n, int64_t, int64_t I, int64_t, int32_t top_k) {
  return n * top_k * 2 * I * (int64_t)sizeof(float);
}

int32_t moe_forward(sfx_stream* stream, const sfx_tensor* x, const int32_t* index, const float* weight, int32_t top_k,
                    const sfx_tensor* gate_up, const sfx_tensor* gate_up_bias, const sfx_tensor* down,
                    const sfx_tensor* down_bias, float limit, sfx_tensor* y, void* saved) {
  return moe_adapted_forward(stream, x, index, weight, top_k, gate_up, gate_up_bias, down, down_bias, limit, y, saved,
                             nullptr);
}

int32_t moe_adapted_forward(sfx_stream* stream, const sfx_tensor* x, const int32_t* index, const float* weight,
                            int32_t top_k, const sfx_tensor* gate_up, const sfx_tensor* gate_up_bias,
                            const sfx_tensor* down, const sfx_tensor* down_bias, float limit, sfx_tensor* y,
                            void* saved, const sfx_moe_adapters* lora) {
  SFX_TRY(check_experts(x, gate_up, gate_up_bias, down, down_bias, top_k));
  SFX_REQUIRE_F32(y);
  SFX_REQUIRE(unit_last(y), "moe: rows must be contiguous");
  SFX_REQUIRE(y || saved, "moe: neither an output nor a place to save");
  Scratch scratch(stream);
  const int64_t n = x->shape[0], h = x->shape[1], experts = gate_up->shape[0], I = down->shape[1];
  SortedPairs r;
  SFX_TRY(sort_pairs(scratch, index, n, top_k, experts, &r));
  float* const xs = scratch.take<float>(r.pairs * h);
  float* const gu = saved ? static_cast<float*>(saved) : scratch.take<float>(r.pairs * 2 * I);
  float *const act = y ? scratch.take<float>(r.pairs * I) : nullptr, *const ys =
                                                                         y ? scratch.take<float>(r.pairs * h) : nullptr;
  const ExpertAdapters adapters = expert_adapters(scratch, lora, r.pairs, experts, h, I);
  SFX_TRY(scratch.status());
  SFX_TRY(gather_rows(stream, floats(x), x->stride[0], r.order, top_k, r.pairs, h, xs));
  SFX_TRY(multiply_experts(stream, r, xs, gate_up, false, gate_up_bias, gu));
  SFX_TRY(adapters.up.add_forward(stream, r, xs, gu));
  if (!y) return SFX_OK;
  const int64_t count = r.pairs * I;
  SFX_TRY(SFX_LAUNCH(stream, clamped_swiglu_kernel, grid(pieces(count, kThreads)), kThreads, 0, gu, count, limit, act));
  SFX_TRY(multiply_experts(stream, r, act, down, false, down_bias, ys));
  SFX_TRY(adapters.down.add_forward(stream, r, act, ys));
  return combine_pairs(stream, r, ys, weight, n, top_k, y);
}

}  // namespace sfx::cuda
