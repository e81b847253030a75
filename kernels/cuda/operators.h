// The operators of the CUDA backend, with the types of the table in backend.h, and what they check and begin with.
#ifndef SINKFLEX_CUDA_OPERATORS_H
#define SINKFLEX_CUDA_OPERATORS_H

#include "device.h"

namespace sfx::cuda {

#define SFX_OPERATORS(X)     \
  X(embedding_forward)       \
  X(embedding_backward)      \
  X(rms_norm_forward)        \
  X(rms_norm_backward)       \
  X(linear_forward)          \
  X(linear_backward_input)   \
  X(linear_backward_weight)  \
  X(rope)                    \
  X(attention_forward)       \
  X(attention_backward)      \
  X(kv_write)                \
  X(attention_paged)         \
  X(router_forward)          \
  X(router_replay)           \
  X(router_backward)         \
  X(router_balance)          \
  X(router_balance_backward) \
  X(moe_saved_bytes)         \
  X(moe_forward)             \
  X(moe_backward)            \
  X(moe_adapted_forward)     \
  X(moe_adapted_backward)    \
  X(swiglu_forward)          \
  X(swiglu_backward)         \
  X(linear_logprob_forward)  \
  X(linear_logprob_backward) \
  X(linear_sample)           \
  X(sum_squares)             \
  X(adamw_stored)            \
  X(adamw)                   \
  X(scale)                   \
  X(add)

#define SFX_DECLARE(name) std::remove_pointer_t<decltype(sfx_backend::name)> name;
SFX_OPERATORS(SFX_DECLARE)
#undef SFX_DECLARE

// How many rows of logits the head holds at once.
int64_t rows_at_once(int64_t vocabulary, int64_t rows);

inline float* floats(const sfx_tensor* t) { return static_cast<float*>(t->data); }
inline bool unit_last(const sfx_tensor* t) {
  return !t || t->rank < 1 || t->stride[t->rank - 1] == 1 || t->shape[t->rank - 1] <= 1;
}

#define SFX_REQUIRE_F32(...)                                                                              \
  do {                                                                                                    \
    const sfx_tensor* const tensors_[] = {__VA_ARGS__};                                                   \
    for (const sfx_tensor* tensor_ : tensors_)                                                            \
      if (tensor_ && tensor_->dtype != SFX_F32)                                                           \
        return sfx::cuda::fail(SFX_UNSUPPORTED, "this operator of the CUDA backend computes in float32"); \
  } while (0)

}  // namespace sfx::cuda
#endif
