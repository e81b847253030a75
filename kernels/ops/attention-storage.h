// bf16 storage around float32 operators: what is read is widened into scratch, what is written is rounded to nearest,
// ties to even, once. Linear in the tensor.
#ifndef SINKFLEX_OPS_ATTENTION_STORAGE_H
#define SINKFLEX_OPS_ATTENTION_STORAGE_H

#include "operation.h"

namespace SFX_NS {

SFX_INLINE bool stored_bf16(const sfx_tensor* t) { return t && t->dtype == SFX_BF16; }

#define SFX_CHECK_STORAGE(...)                                                                           \
  do {                                                                                                   \
    const sfx_tensor* const tensors_[] = {__VA_ARGS__};                                                  \
    for (const sfx_tensor* tensor_ : tensors_)                                                           \
      if (!is_f32(tensor_) && !stored_bf16(tensor_))                                                     \
        return sfx::fail(SFX_UNSUPPORTED, "attention reads and writes float32 and bf16; convert first"); \
  } while (0)

// A float32 tensor [n, heads, D] of the same shape, dense, in scratch.
SFX_INLINE sfx_tensor scratch_like(const Scratch& scratch, const sfx_tensor* t) {
  sfx_tensor f = *t;
  f.dtype = SFX_F32;
  f.stride[2] = 1, f.stride[1] = t->shape[2], f.stride[0] = t->shape[1] * t->shape[2];
  f.data = scratch.floats(t->shape[0] * f.stride[0]);
  return f;
}

template <class Row>
void each_row(sfx_stream* stream, const sfx_tensor* t, const Row& row) {
  const int64_t heads = t->shape[1];
  parallel_ranges(stream, t->shape[0] * heads, 1, (double)t->shape[0] * heads * t->shape[2] / 8,
                  [&](int64_t begin, int64_t end) {
                    for (int64_t i = begin; i < end; i++) row(i / heads, i % heads);
                  });
}

// The tensor itself, or its widened copy.
[[maybe_unused]] static sfx_tensor widened(const Scratch& scratch, sfx_stream* stream, const sfx_tensor* t) {
  if (!stored_bf16(t)) return *t;
  const sfx_tensor f = scratch_like(scratch, t);
  each_row(stream, t, [&](int64_t i, int64_t h) {
    const uint16_t* from = static_cast<const uint16_t*>(t->data) + i * t->stride[0] + h * t->stride[1];
    float* to = data(&f) + i * f.stride[0] + h * f.stride[1];
    for (int64_t d = 0; d < t->shape[2]; d++) {
      const uint32_t bits = (uint32_t)from[d] << 16;
      __builtin_memcpy(to + d, &bits, 4);
    }
  });
  return f;
}

[[maybe_unused]] static void narrow_into(sfx_stream* stream, const sfx_tensor* from, sfx_tensor* t) {
  if (!stored_bf16(t)) return;
  each_row(stream, t, [&](int64_t i, int64_t h) {
    const float* x = data(from) + i * from->stride[0] + h * from->stride[1];
    uint16_t* to = static_cast<uint16_t*>(t->data) + i * t->stride[0] + h * t->stride[1];
    for (int64_t d = 0; d < t->shape[2]; d++) {
      uint32_t bits;
      __builtin_memcpy(&bits, x + d, 4);
      const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
      to[d] = (uint16_t)(nan ? (bits >> 16) | 0x40u : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
    }
  });
}

}  // namespace SFX_NS
#endif
