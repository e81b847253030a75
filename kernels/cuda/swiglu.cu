// Dense SwiGLU: act = silu(gate) up. Backward: dup = dact silu(gate), dgate = dact up s (1 + gate (1 - s)), s =
// sigmoid(gate). A thread an element.
#include "intrinsics.cuh"
#include "operators.h"

namespace sfx::cuda {

namespace {

constexpr int kThreads = 256;

struct SwigluArguments {
  const float *gate, *up, *dact;
  float *act, *dgate, *dup;
  int64_t count, width, gate_row, up_row, act_row, dact_row, dgate_row, dup_row;
};

__global__ void __launch_bounds__(kThreads) swiglu_forward_kernel(const SwigluArguments a) {
  const int64_t i = (int64_t)blockIdx.x * kThreads + threadIdx.x;
  if (i >= a.count) return;
  const int64_t row = i / a.width, j = i % a.width;
  const float gate = a.gate[row * a.gate_row + j], s = 1.0f / (1.0f + expf(-gate));
  a.act[row * a.act_row + j] = gate * s * a.up[row * a.up_row + j];
}

__global__ void __launch_bounds__(kThreads) swiglu_backward_kernel(const SwigluArguments a) {
  const int64_t i = (int64_t)blockIdx.x * kThreads + threadIdx.x;
  if (i >= a.count) return;
  const int64_t row = i / a.width, j = i % a.width;
  const float gate = a.gate[row * a.gate_row + j], s = 1.0f / (1.0f + expf(-gate));
  const float d = a.dact[row * a.dact_row + j];
  a.dgate[row * a.dgate_row + j] = d * a.up[row * a.up_row + j] * (s * fmaf(gate, 1.0f - s, 1.0f));
  a.dup[row * a.dup_row + j] = d * (gate * s);
}

}  // namespace

int32_t swiglu_forward(sfx_stream* stream, const sfx_tensor* gate, const sfx_tensor* up, sfx_tensor* act) {
  SFX_REQUIRE_F32(gate, up, act);
  SFX_REQUIRE(unit_last(gate) && unit_last(up) && unit_last(act), "swiglu: rows must be contiguous");
  SwigluArguments a = {};
  a.gate = floats(gate), a.up = floats(up), a.act = floats(act);
  a.gate_row = gate->stride[0], a.up_row = up->stride[0], a.act_row = act->stride[0];
  a.width = gate->shape[1], a.count = gate->shape[0] * a.width;
  return SFX_LAUNCH(stream, swiglu_forward_kernel, grid(pieces(a.count, kThreads)), kThreads, 0, a);
}

int32_t swiglu_backward(sfx_stream* stream, const sfx_tensor* dact, const sfx_tensor* gate, const sfx_tensor* up,
                        sfx_tensor* dgate, sfx_tensor* dup) {
  SFX_REQUIRE_F32(dact, gate, up, dgate, dup);
  SFX_REQUIRE(unit_last(dact) && unit_last(gate) && unit_last(up) && unit_last(dgate) && unit_last(dup),
              "swiglu: rows must be contiguous");
  SwigluArguments a = {};
  a.gate = floats(gate), a.up = floats(up), a.dact = floats(dact), a.dgate = floats(dgate), a.dup = floats(dup);
  a.gate_row = gate->stride[0], a.up_row = up->stride[0], a.dact_row = dact->stride[0];
  a.dgate_row = dgate->stride[0], a.dup_row = dup->stride[0];
  a.width = gate->shape[1], a.count = gate->shape[0] * a.width;
  return SFX_LAUNCH(stream, swiglu_backward_kernel, grid(pieces(a.count, kThreads)), kThreads, 0, a);
}

}  // namespace sfx::cuda
