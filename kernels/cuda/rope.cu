// Rotary position embedding on half-split pairs: (a, b) -> (a cos - b sin, b cos + a sin), a = x[j], b = x[j + D/2];
// the tables hold YaRN and the like. The backward is the inverse rotation. A thread a pair.
#include "intrinsics.cuh"
#include "operators.h"

namespace sfx::cuda {

namespace {

constexpr int kThreads = 256;

struct RopeArguments {
  float* x;
  const int32_t* position;
  const float *cosine, *sine;
  int64_t count, row, head, cosine_row, sine_row;  // count: rows * heads * half
  int32_t heads, half;
  float sign;
};

__global__ void __launch_bounds__(kThreads) rope_kernel(const RopeArguments a) {
  const int64_t i = (int64_t)blockIdx.x * kThreads + threadIdx.x;
  if (i >= a.count) return;
  const int64_t j = i % a.half, row = i / a.half / a.heads, position = a.position[row];
  float* const at = a.x + row * a.row + i / a.half % a.heads * a.head + j;
  const float c = a.cosine[position * a.cosine_row + j], s = a.sign * a.sine[position * a.sine_row + j];
  const float first = at[0], second = at[a.half];
  at[0] = fmaf(-second, s, first * c);
  at[a.half] = fmaf(first, s, second * c);
}

}  // namespace

int32_t rope(sfx_stream* stream, sfx_tensor* x, const int32_t* position, const sfx_tensor* cosine,
             const sfx_tensor* sine, int32_t inverse) {
  SFX_REQUIRE_F32(x, cosine, sine);
  SFX_REQUIRE(unit_last(x) && unit_last(cosine) && unit_last(sine) && x->rank == 3,
              "rope: x is [n, heads, D] with contiguous rows");
  SFX_REQUIRE(x->shape[2] % 2 == 0 && cosine->shape[1] >= x->shape[2] / 2, "rope: D must be even and match the tables");
  Scratch scratch(stream);
  RopeArguments a = {};
  a.x = floats(x), a.position = scratch.input(position, x->shape[0]);
  a.cosine = floats(cosine), a.sine = floats(sine), a.cosine_row = cosine->stride[0], a.sine_row = sine->stride[0];
  a.heads = (int32_t)x->shape[1], a.half = (int32_t)(x->shape[2] / 2), a.row = x->stride[0], a.head = x->stride[1];
  a.count = x->shape[0] * a.heads * a.half, a.sign = inverse ? -1.0f : 1.0f;
  SFX_TRY(scratch.status());
  return SFX_LAUNCH(stream, rope_kernel, grid(pieces(a.count, kThreads)), kThreads, 0, a);
}

}  // namespace sfx::cuda
