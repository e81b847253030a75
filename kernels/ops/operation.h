// What every operator begins with: the floating-point state, its scratch, tensor checks, and loops over the team.
#ifndef SINKFLEX_OPS_OPERATION_H
#define SINKFLEX_OPS_OPERATION_H

#include "isa.h"
#include "team.h"

namespace SFX_NS {

using sfx::team_size;

class Scratch {
 public:
  explicit Scratch(sfx_stream* s) : stream_(s), mark_(sfx::arena_enter(s)) {}
  ~Scratch() { sfx::arena_leave(stream_, mark_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  float* floats(int64_t count) const { return take<float>(count); }
  template <class T>
  T* take(int64_t count) const {
    return static_cast<T*>(sfx::arena_take(stream_, count * (int64_t)sizeof(T)));
  }

 private:
  sfx_stream* stream_;
  int64_t mark_;
};

// Scratch and floating-point state for the time of one operator.
class Operation : public Scratch {
 public:
  explicit Operation(sfx_stream* s) : Scratch(s), state_(sfx::float_state_enter()) {}
  ~Operation() { sfx::float_state_leave(state_); }

 private:
  uint64_t state_;
};

// body(index, thread) for index in [0, count)
template <class Body>
void parallel(sfx_stream* stream, int64_t count, const Body& body) {
  sfx::team_run(
      stream, count,
      [](void* context, int64_t index, int32_t thread) { (*static_cast<const Body*>(context))(index, thread); },
      const_cast<void*>(static_cast<const void*>(&body)));
}

// body(begin, end) over [0, count) in pieces that are multiples of `grain`; on the caller when the whole costs little
// (work: about one a vector instruction or cache line).
template <class Body>
void parallel_ranges(sfx_stream* stream, int64_t count, int64_t grain, double work, const Body& body) {
  const int64_t team = team_size(stream);
  if (team == 1 || work < 40e3 || count <= grain) {
    if (count > 0) body((int64_t)0, count);
    return;
  }
  const int64_t pieces = 4 * team;
  const int64_t size = ((count + pieces - 1) / pieces + grain - 1) / grain * grain;
  parallel(stream, (count + size - 1) / size,
           [&](int64_t i, int32_t) { body(i * size, i * size + size < count ? i * size + size : count); });
}

// Contiguous trailing dimensions from dimension `from` on: the tensor may be addressed as rows of stride[from - 1].
SFX_INLINE bool dense_from(const sfx_tensor* t, int from) {
  int64_t expected = 1;
  for (int d = t->rank - 1; d >= from; d--) {
    if (t->shape[d] > 1 && t->stride[d] != expected) return false;
    expected *= t->shape[d];
  }
  return true;
}
SFX_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
SFX_INLINE int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
SFX_INLINE float* data(const sfx_tensor* t) { return static_cast<float*>(t->data); }
SFX_INLINE bool is_f32(const sfx_tensor* t) { return !t || t->dtype == SFX_F32; }
SFX_INLINE bool unit_last(const sfx_tensor* t) {
  return !t || t->rank < 1 || t->stride[t->rank - 1] == 1 || t->shape[t->rank - 1] <= 1;
}

#define SFX_CHECK_F32(...)                                                                                           \
  do {                                                                                                               \
    const sfx_tensor* const tensors_[] = {__VA_ARGS__};                                                              \
    for (const sfx_tensor* tensor_ : tensors_)                                                                       \
      if (!is_f32(tensor_)) return sfx::fail(SFX_UNSUPPORTED, "the CPU backend computes in float32; convert first"); \
  } while (0)
// Weights that products read: float32, or bf16 that is widened on the way.
#define SFX_CHECK_WEIGHT(tensor)                                            \
  do {                                                                      \
    if ((tensor)->dtype != SFX_F32 && (tensor)->dtype != SFX_BF16)          \
      return sfx::fail(SFX_UNSUPPORTED, "weights must be float32 or bf16"); \
  } while (0)
// Experts [E, in, out]: these, or MXFP4, which lies as [E, out, in].
#define SFX_CHECK_EXPERTS(tensor)                                                                           \
  do {                                                                                                      \
    if ((tensor)->dtype != SFX_MXFP4) SFX_CHECK_WEIGHT(tensor);                                             \
    if ((tensor)->dtype == SFX_MXFP4 && ((tensor)->stride[1] != 1 || (tensor)->stride[2] % 32 != 0))        \
      return sfx::fail(SFX_BAD_ARGUMENT, "experts in MXFP4 need rows of blocks along their input's width"); \
  } while (0)
#define SFX_CHECK(condition, message)                              \
  do {                                                             \
    if (!(condition)) return sfx::fail(SFX_BAD_ARGUMENT, message); \
  } while (0)

}  // namespace SFX_NS
#endif
