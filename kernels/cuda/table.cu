// The operator table of the CUDA backend, and what the library exports.
#include <stdio.h>
#include <string.h>

#include <algorithm>

#include "cublaslt.h"
#include "operators.h"

#define SFX_EXPORT extern "C" __attribute__((visibility("default")))

namespace sfx::cuda {

namespace {

// The scratch of the operator that takes most, said before anything is allocated; see the `take` calls of each.
int64_t workspace_bytes(const sfx_pass_shape* s) {
  constexpr int64_t kFloat = sizeof(float), kSlack = 1 << 16;
  const int64_t wide = s->n * s->heads * s->head_dim, narrow = s->n * s->kv_heads * s->head_dim;
  // Copies of q, k, v (and dout) in 16 bits, and two numbers a row and head.
  const int64_t attention = ((s->backward ? 3 : 1) * wide + 2 * narrow) * 2 + s->n * s->heads * 12 + s->tiles * 32;
  const int64_t pairs = s->n * s->top_k, rank = s->experts > 0 ? s->expert_rank : 0;
  const int64_t experts =
      (pairs * (s->backward ? 3 * s->h + 4 * s->I : 2 * s->h + 3 * s->I) + 4 * pairs * (rank + 1) + 2 * s->experts) *
      kFloat;
  const int64_t at_once = rows_at_once(s->V, s->rows);
  const int64_t head = (s->rows * s->h + at_once * (s->V + (s->backward ? s->h : 0)) + 2 * s->n) * kFloat;
  return std::max(std::max(attention, experts), head) + cublaslt_workspace_bytes() + kSlack;
}
int64_t logits_bytes(const sfx_pass_shape* s) { return rows_at_once(s->V, s->rows) * s->V * (int64_t)sizeof(float); }
double fma_work(int64_t) { return 0; }

sfx_backend make_table() {
  sfx_backend t = {};
  t.version = SFX_BACKEND_VERSION;
#ifdef __CUDACC__
  t.name = "cuda";
#else
  t.name = "cuda-emulated";
#endif
  t.device_memory = 1;
  t.stream_create = stream_create, t.stream_destroy = stream_destroy, t.synchronize = synchronize;
  t.last_error = last_error, t.allocate = allocate, t.release = release, t.copy = copy, t.fill_zero = fill_zero;
  t.workspace_peak = arena_peak, t.workspace_bytes = workspace_bytes, t.logits_bytes = logits_bytes;
  t.workspace_reserve = arena_reserve;
#define SFX_ENTER(name) t.name = name;
  SFX_OPERATORS(SFX_ENTER)
#undef SFX_ENTER
  t.fma_work = fma_work;
  return t;
}

}  // namespace

}  // namespace sfx::cuda

namespace {

int32_t check_version(int32_t version) {
  if (version == SFX_BACKEND_VERSION) return SFX_OK;
  return sfx::cuda::fail(SFX_BAD_ARGUMENT, "the library speaks version %d of the backend interface, not %d",
                         SFX_BACKEND_VERSION, version);
}

}  // namespace

SFX_EXPORT int32_t sfx_backend_probe(int32_t version, int32_t device, char* message, int64_t message_bytes) {
  using namespace sfx::cuda;
  int32_t status = check_version(version);
  if (status == SFX_OK) status = device_probe(device, message, (size_t)message_bytes);
  if (status != SFX_OK) snprintf(message, (size_t)message_bytes, "%s", last_error());
  return status;
}

SFX_EXPORT const sfx_backend* sfx_backend_open(int32_t version, int32_t device, int32_t* status, char* message,
                                               int64_t message_bytes) {
  using namespace sfx::cuda;
  *status = check_version(version);
  if (*status == SFX_OK) *status = device_open(device);
  if (*status != SFX_OK) {
    snprintf(message, (size_t)message_bytes, "%s", last_error());
    return nullptr;
  }
  static const sfx_backend table = make_table();
  return &table;
}
