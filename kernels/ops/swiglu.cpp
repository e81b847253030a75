// The dense SwiGLU of llama and qwen, elementwise between two products. act = silu(gate) up, silu(x) = x sigmoid(x).
// Backward with s = sigmoid(gate): dup = dact gate s; dgate = dact up s (1 + gate (1 - s)).
// Bytes bound: forward 2 reads and 1 write an element, backward 3 and 2.
#include "elementary.h"
#include "operation.h"
#include "operators.h"

namespace SFX_NS {

int32_t swiglu_forward(sfx_stream* s, const sfx_tensor* gate, const sfx_tensor* up, sfx_tensor* act) {
  SFX_CHECK_F32(gate, up, act);
  SFX_CHECK(unit_last(gate) && unit_last(up) && unit_last(act), "swiglu: rows must be contiguous");
  const Operation op(s);
  const int64_t n = gate->shape[0], I = gate->shape[1];
  parallel_ranges(s, n, 1, (double)n * I, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++) {
      const float *g = data(gate) + r * gate->stride[0], *u = data(up) + r * up->stride[0];
      float* const out = data(act) + r * act->stride[0];
      for (int64_t j = 0; j < I; j += 16) {
        const v16 x = load_part(g + j, I - j);
        store_part(out + j, mul(mul(x, sigmoid(x)), load_part(u + j, I - j)), I - j);
      }
    }
  });
  return SFX_OK;
}

int32_t swiglu_backward(sfx_stream* s, const sfx_tensor* dact, const sfx_tensor* gate, const sfx_tensor* up,
                        sfx_tensor* dgate, sfx_tensor* dup) {
  SFX_CHECK_F32(dact, gate, up, dgate, dup);
  SFX_CHECK(unit_last(dact) && unit_last(gate) && unit_last(up) && unit_last(dgate) && unit_last(dup),
            "swiglu: rows must be contiguous");
  const Operation op(s);
  const int64_t n = gate->shape[0], I = gate->shape[1];
  parallel_ranges(s, n, 1, (double)n * I * 1.5, [&](int64_t begin, int64_t end) {
    const v16 one = set1(1.0f);
    for (int64_t r = begin; r < end; r++) {
      const float *g = data(gate) + r * gate->stride[0], *u = data(up) + r * up->stride[0];
      const float* const d = data(dact) + r * dact->stride[0];
      float *const dg = data(dgate) + r * dgate->stride[0], *const du = data(dup) + r * dup->stride[0];
      for (int64_t j = 0; j < I; j += 16) {
        const int64_t left = I - j;
        const v16 x = load_part(g + j, left), a = load_part(d + j, left), y = load_part(u + j, left);
        const v16 sg = sigmoid(x);
        store_part(du + j, mul(a, mul(x, sg)), left);
        store_part(dg + j, mul(mul(a, y), mul(sg, fma(x, sub(one, sg), one))), left);
      }
    }
  });
  return SFX_OK;
}

}  // namespace SFX_NS
