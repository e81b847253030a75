// AdamW as in adamw.cu, over other storage: bf16 parameters that are rounded stochastically, and moments of 8 bits with
// a scale a block of 256 (moment-codes.h). A block of threads has a block of moments, a thread a parameter.
#include "../ops/moment-codes.h"
#include "operators.h"
#include "reduce.cuh"

namespace sfx::cuda {

namespace {

constexpr int kThreads = (int)kMomentBlock;

struct Codes {
  float value[256], middle[256];
  int32_t ranks;
};
Codes codes_of(bool with_sign) {
  MomentCodes all;
  fill_moment_codes(with_sign, &all);
  Codes c;
  for (int i = 0; i < 256; i++) c.value[i] = all.value[i], c.middle[i] = all.middle[i];
  c.ranks = all.ranks;
  return c;
}

// The code's rank whose value is nearest to `magnitude`, of [0, 1].
SFX_DEVICE int nearest(const Codes& c, float magnitude) {
  int low = 0, high = c.ranks - 1;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (magnitude >= c.middle[middle])
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

// murmur3's finaliser: every bit of the counter reaches every bit of the result.
SFX_DEVICE uint32_t mixed(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x85ebca6bu;
  x = (x ^ (x >> 13)) * 0xc2b2ae35u;
  return x ^ (x >> 16);
}
SFX_DEVICE uint16_t round_stochastically(float x, const sfx_adamw_storage& s, int64_t at) {
  const uint64_t index = (uint64_t)(s.first + at);
  const uint32_t random = mixed(s.key[0] ^ mixed((uint32_t)index ^ mixed(s.key[1] + (uint32_t)(index >> 32))));
  const uint32_t bits = __float_as_uint(x);
  const bool finite = (bits & 0x7f800000u) != 0x7f800000u;
  return (uint16_t)((finite ? bits + (random >> 16) : bits | (uint32_t)((bits & 0x7fffffu) != 0) << 16) >> 16);
}

struct StoredArguments {
  const void* p_in;
  const float* g;
  int64_t count;
  sfx_adamw_options o;
  sfx_adamw_storage s;
  void* p_out;
  const Codes* codes;  // of signed moments, of squares
};

__global__ void __launch_bounds__(kThreads) adamw_stored_kernel(const StoredArguments a) {
  float* const each = reinterpret_cast<float*>(shared_memory());
  const sfx_adamw_options& o = a.o;
  const int64_t i = (int64_t)blockIdx.x * kThreads + threadIdx.x;
  const bool there = i < a.count;
  float mean = 0.0f, square = 0.0f;
  if (there) {
    const float old = a.s.bf16 ? widen(static_cast<const Bf16*>(a.p_in)[i]) : static_cast<const float*>(a.p_in)[i];
    const float m = a.s.quantized ? a.codes[0].value[static_cast<const uint8_t*>(a.s.m)[i]] * a.s.m_scale[blockIdx.x]
                                  : static_cast<const float*>(a.s.m)[i];
    const float v = a.s.quantized ? a.codes[1].value[static_cast<const uint8_t*>(a.s.v)[i]] * a.s.v_scale[blockIdx.x]
                                  : static_cast<const float*>(a.s.v)[i];
    const float grad = a.g[i] * o.grad_scale;
    mean = fmaf(o.beta1, m, (1.0f - o.beta1) * grad);
    square = fmaf(o.beta2, v, (1.0f - o.beta2) * (grad * grad));
    const float update = mean / o.bias_correction1 / (sqrtf(square / o.bias_correction2) + o.eps);
    const float p = fmaf(-o.lr, update, (1.0f - o.lr * o.weight_decay) * old);
    if (a.s.bf16)
      static_cast<Bf16*>(a.p_out)[i].bits = round_stochastically(p, a.s, i);
    else
      static_cast<float*>(a.p_out)[i] = p;
  }
  if (!a.s.quantized) {
    if (there) static_cast<float*>(a.s.m)[i] = mean, static_cast<float*>(a.s.v)[i] = square;
    return;
  }
  const float top_mean = block_max(fabsf(mean), each), top_square = block_max(square, each);
  if (threadIdx.x == 0) a.s.m_scale[blockIdx.x] = top_mean, a.s.v_scale[blockIdx.x] = top_square;
  if (!there) return;
  const int r = nearest(a.codes[0], fabsf(mean) / (top_mean > 0.0f ? top_mean : 1.0f));
  static_cast<uint8_t*>(a.s.m)[i] = (uint8_t)(mean < 0.0f && r > 0 ? 128 + (r < 127 ? r : 127) : r);
  // A square that is not 0 never becomes 0: its root divides.
  const int q = nearest(a.codes[1], square / (top_square > 0.0f ? top_square : 1.0f));
  static_cast<uint8_t*>(a.s.v)[i] = (uint8_t)(q == 0 && square > 0.0f ? 1 : q);
}

}  // namespace

int32_t adamw_stored(sfx_stream* stream, const void* p_in, const float* g, int64_t count, const sfx_adamw_options* o,
                     const sfx_adamw_storage* storage, void* p_out) {
  SFX_REQUIRE(!storage->quantized || (storage->m_scale && storage->v_scale),
              "adamw: quantised moments need their scales");
  static const std::vector<Codes> codes = {codes_of(true), codes_of(false)};
  Scratch scratch(stream);
  const StoredArguments a = {p_in, g, count, *o, *storage, p_out, scratch.input(codes)};
  SFX_TRY(scratch.status());
  return SFX_LAUNCH(stream, adamw_stored_kernel, grid(pieces(count, kThreads)), kThreads, kWarpSize * sizeof(float), a);
}

}  // namespace sfx::cuda
