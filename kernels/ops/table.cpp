// Fills the operator table of one instruction set.
#include <string.h>

#include <new>

#include "operation.h"
#include "operators.h"

namespace SFX_NS {
namespace {

// An operator that finds no memory for its scratch returns a status; nothing is thrown across the table.
template <auto Operator>
struct Guarded;
template <class... Arguments, int32_t (*Operator)(Arguments...)>
struct Guarded<Operator> {
  static int32_t call(Arguments... arguments) {
    try {
      return Operator(arguments...);
    } catch (const std::bad_alloc&) {
      return sfx::fail(SFX_OUT_OF_MEMORY, "no memory for the scratch of an operator; use smaller batches");
    }
  }
};

int32_t synchronize(sfx_stream*) { return SFX_OK; }  // operators return when they are done
int32_t copy(sfx_stream* s, void* to, const void* from, int64_t bytes) {
  parallel_ranges(s, bytes, 4096, (double)bytes / 16, [&](int64_t begin, int64_t end) {
    memcpy(static_cast<char*>(to) + begin, static_cast<const char*>(from) + begin, (size_t)(end - begin));
  });
  return SFX_OK;
}
int32_t fill_zero(sfx_stream* s, void* to, int64_t bytes) {
  parallel_ranges(s, bytes, 4096, (double)bytes / 16, [&](int64_t begin, int64_t end) {
    memset(static_cast<char*>(to) + begin, 0, (size_t)(end - begin));
  });
  return SFX_OK;
}

int32_t workspace_reserve(sfx_stream* s, int64_t bytes) {
  return sfx::arena_reserve(s, bytes) ? SFX_OK : sfx::fail(SFX_OUT_OF_MEMORY, "no memory for the scratch of a pass");
}

}  // namespace

static const sfx_backend table = {
    SFX_BACKEND_VERSION,
    SFX_ISA_NAME,
    0,
    sfx::stream_create,
    sfx::stream_destroy,
    synchronize,
    sfx::last_error,
    sfx::allocate,
    sfx::release,
    copy,
    fill_zero,
    sfx::arena_peak,
    workspace_bytes,
    logits_bytes,
    workspace_reserve,
    Guarded<embedding_forward>::call,
    Guarded<embedding_backward>::call,
    Guarded<rms_norm_forward>::call,
    Guarded<rms_norm_backward>::call,
    Guarded<linear_forward>::call,
    Guarded<linear_backward_input>::call,
    Guarded<linear_backward_weight>::call,
    Guarded<rope>::call,
    Guarded<attention_forward>::call,
    Guarded<attention_backward>::call,
    Guarded<kv_write>::call,
    Guarded<attention_paged>::call,
    Guarded<router_forward>::call,
    Guarded<router_replay>::call,
    Guarded<router_backward>::call,
    Guarded<router_balance>::call,
    Guarded<router_balance_backward>::call,
    moe_saved_bytes,
    Guarded<moe_forward>::call,
    Guarded<moe_backward>::call,
    Guarded<moe_adapted_forward>::call,
    Guarded<moe_adapted_backward>::call,
    Guarded<swiglu_forward>::call,
    Guarded<swiglu_backward>::call,
    Guarded<linear_logprob_forward>::call,
    Guarded<linear_logprob_backward>::call,
    Guarded<linear_sample>::call,
    Guarded<sum_squares>::call,
    Guarded<adamw>::call,
    Guarded<adamw_stored>::call,
    Guarded<scale>::call,
    Guarded<add_arrays>::call,
    fma_work,
};

}  // namespace SFX_NS

extern "C" const sfx_backend* SFX_ISA_TABLE();
extern "C" const sfx_backend* SFX_ISA_TABLE() { return &SFX_NS::table; }
