// Fills the operator table of one instruction set.
#include "operation.h"
#include "operators.h"

#include <string.h>

namespace SFX_NS {
namespace {

int32_t synchronize(sfx_stream *) { return SFX_OK; }  // operators return when they are done
int32_t copy(sfx_stream *, void *to, const void *from, int64_t bytes) {
  if (bytes > 0) memcpy(to, from, (size_t)bytes);
  return SFX_OK;
}
int32_t fill_zero(sfx_stream *, void *to, int64_t bytes) {
  if (bytes > 0) memset(to, 0, (size_t)bytes);
  return SFX_OK;
}

}  // namespace

static const sfx_backend table = {
    SFX_BACKEND_VERSION,
    SFX_ISA_NAME,
    sfx::stream_create,
    sfx::stream_destroy,
    synchronize,
    sfx::last_error,
    sfx::allocate,
    sfx::release,
    copy,
    fill_zero,
    embedding_forward,
    embedding_backward,
    rms_norm_forward,
    rms_norm_backward,
    linear_forward,
    linear_backward_input,
    linear_backward_weight,
    rope,
    attention_forward,
    attention_backward,
    kv_write,
    attention_paged,
    router_forward,
    router_backward,
    moe_saved_bytes,
    moe_forward,
    moe_backward,
    linear_logprob_forward,
    linear_logprob_backward,
    linear_sample,
    sum_squares,
    adamw,
};

}  // namespace SFX_NS

extern "C" const sfx_backend *SFX_ISA_TABLE();
extern "C" const sfx_backend *SFX_ISA_TABLE() { return &SFX_NS::table; }
