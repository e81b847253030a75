// The operator table of the CUDA backend, and what the library exports.
#include <stdio.h>
#include <string.h>

#include "attention.cuh"
#include "device.h"

#define SFX_EXPORT extern "C" __attribute__((visibility("default")))

namespace sfx::cuda {

namespace {

// An operator that has no kernel: the call says so.
template <class Function>
struct Absent;
template <class... Arguments>
struct Absent<int32_t (*)(Arguments...)> {
  static int32_t call(Arguments...) {
    return fail(SFX_UNSUPPORTED, "the CUDA backend has no kernel for this operator");
  }
};

int64_t workspace_bytes(const sfx_pass_shape* s) {
  // Copies of q, k, v and dout in 16 bits, and two numbers a row and head.
  const int64_t wide = s->n * s->heads * s->head_dim * 2, narrow = s->n * s->kv_heads * s->head_dim * 2;
  return (s->backward ? 3 : 1) * wide + 2 * narrow + s->n * s->heads * 12 + s->tiles * 16 + (1 << 16);
}
int64_t logits_bytes(const sfx_pass_shape*) { return 0; }
int64_t moe_saved_bytes(int64_t, int64_t, int64_t, int64_t, int32_t) { return 0; }
double fma_work(int64_t) { return 0; }

sfx_backend make_table() {
  sfx_backend t = {};
#define SFX_ABSENT(name) t.name = Absent<decltype(t.name)>::call
  t.version = SFX_BACKEND_VERSION;
#ifdef __CUDACC__
  t.name = "cuda";
#else
  t.name = "cuda-emulated";
#endif
  t.stream_create = stream_create, t.stream_destroy = stream_destroy, t.synchronize = synchronize;
  t.last_error = last_error, t.allocate = allocate, t.release = release, t.copy = copy, t.fill_zero = fill_zero;
  t.workspace_peak = arena_peak, t.workspace_bytes = workspace_bytes, t.logits_bytes = logits_bytes;
  t.workspace_reserve = arena_reserve;
  SFX_ABSENT(embedding_forward), SFX_ABSENT(embedding_backward);
  SFX_ABSENT(rms_norm_forward), SFX_ABSENT(rms_norm_backward);
  SFX_ABSENT(linear_forward), SFX_ABSENT(linear_backward_input), SFX_ABSENT(linear_backward_weight);
  SFX_ABSENT(rope);
  t.attention_forward = attention_forward;
  t.attention_backward = attention_backward;
  SFX_ABSENT(kv_write), SFX_ABSENT(attention_paged);
  SFX_ABSENT(router_forward), SFX_ABSENT(router_replay), SFX_ABSENT(router_backward);
  SFX_ABSENT(router_balance), SFX_ABSENT(router_balance_backward);
  t.moe_saved_bytes = moe_saved_bytes;
  SFX_ABSENT(moe_forward), SFX_ABSENT(moe_backward);
  SFX_ABSENT(moe_adapted_forward), SFX_ABSENT(moe_adapted_backward);
  SFX_ABSENT(swiglu_forward), SFX_ABSENT(swiglu_backward);
  SFX_ABSENT(linear_logprob_forward), SFX_ABSENT(linear_logprob_backward), SFX_ABSENT(linear_sample);
  SFX_ABSENT(sum_squares), SFX_ABSENT(adamw), SFX_ABSENT(adamw_stored), SFX_ABSENT(scale);
  t.fma_work = fma_work;
#undef SFX_ABSENT
  return t;
}

}  // namespace

}  // namespace sfx::cuda

SFX_EXPORT const sfx_backend* sfx_backend_open(int32_t version, int32_t device, int32_t* status, char* message,
                                               int64_t message_bytes) {
  using namespace sfx::cuda;
  *status = version == SFX_BACKEND_VERSION
                ? device_open(device)
                : fail(SFX_BAD_ARGUMENT, "the library speaks version %d of the backend interface, not %d",
                       SFX_BACKEND_VERSION, version);
  if (*status != SFX_OK) {
    snprintf(message, (size_t)message_bytes, "%s", last_error());
    return nullptr;
  }
  static const sfx_backend table = make_table();
  return &table;
}

#ifndef __CUDACC__
// For tests: the order in which threads and blocks run.
SFX_EXPORT void sfx_emulation_seed(uint64_t seed) { emulation::set_seed(seed); }
SFX_EXPORT void sfx_emulation_allow_host_memory(int32_t allowed) { emulation::allow_host_memory(allowed != 0); }
#endif
