// AdamW as in adamw.cpp, over other storage: bf16 parameters that are rounded stochastically (up with the probability
// of what is cut off, so that the mean of many steps is right where each is below half a bf16 step), and moments of 8
// bits with a scale a block of 256 (moment-codes.h). Random bits depend on the key and the element's index alone.
#include "moment-codes.h"
#include "operation.h"
#include "operators.h"
#include "v16.h"

namespace SFX_NS {

namespace {

using sfx::kMomentBlock;
using sfx::MomentCodes;

SFX_INLINE uint32_t float_bits(float x) {
  uint32_t b;
  memcpy(&b, &x, 4);
  return b;
}

// murmur3's finaliser: every bit of the counter reaches every bit of the result.
SFX_INLINE uint32_t mixed(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x85ebca6bu;
  x = (x ^ (x >> 13)) * 0xc2b2ae35u;
  return x ^ (x >> 16);
}

void round_to_bf16(const float* from, int64_t count, const sfx_adamw_storage& s, int64_t at, uint16_t* to) {
  for (int64_t i = 0; i < count; i++) {
    const uint64_t index = (uint64_t)(s.first + at + i);
    const uint32_t random = mixed(s.key[0] ^ mixed((uint32_t)index ^ mixed(s.key[1] + (uint32_t)(index >> 32))));
    const uint32_t bits = float_bits(from[i]);
    const bool finite = (bits & 0x7f800000u) != 0x7f800000u;
    to[i] = (uint16_t)((finite ? bits + (random >> 16) : bits | ((bits & 0x7fffffu) != 0) << 16) >> 16);
  }
}

void widen_codes(const MomentCodes& c, const uint8_t* codes, float scale, int64_t count, float* to) {
  for (int64_t i = 0; i < count; i++) to[i] = c.value[codes[i]] * scale;
}

SFX_INLINE int32_t nearest(const MomentCodes& c, float magnitude) {
  const uint32_t upper = float_bits(magnitude) >> 16;
  int32_t r = c.start[upper < 0x3f80 ? upper : 0x3f80];  // what is not finite is nonsense here, but stays in bounds
  while (magnitude >= c.middle[r]) r++;
  return r;
}

// Codes of values of one block; the scale.
float narrow_signed(const MomentCodes& c, const float* x, int64_t count, uint8_t* codes) {
  float top = 0;
  for (int64_t i = 0; i < count; i++) {
    const float a = x[i] < 0 ? -x[i] : x[i];
    top = a > top ? a : top;
  }
  const float by = top > 0 ? top : 1;
  for (int64_t i = 0; i < count; i++) {
    const bool minus = x[i] < 0;
    const int32_t r = nearest(c, (minus ? -x[i] : x[i]) / by);
    codes[i] = (uint8_t)(minus && r > 0 ? 128 + (r < 127 ? r : 127) : r);
  }
  return top;
}
// A square that is not 0 never becomes 0: its root divides.
float narrow_squares(const MomentCodes& c, const float* x, int64_t count, uint8_t* codes) {
  float top = 0;
  for (int64_t i = 0; i < count; i++) top = x[i] > top ? x[i] : top;
  const float by = top > 0 ? top : 1;
  for (int64_t i = 0; i < count; i++) {
    const int32_t r = nearest(c, x[i] / by);
    codes[i] = (uint8_t)(r == 0 && x[i] > 0 ? 1 : r);
  }
  return top;
}

}  // namespace

int32_t adamw_stored(sfx_stream* stream, const void* p_in, const float* g, int64_t count, const sfx_adamw_options* o,
                     const sfx_adamw_storage* storage, void* p_out) {
  const sfx_adamw_storage& s = *storage;
  SFX_CHECK(!s.quantized || (s.m_scale && s.v_scale), "adamw: quantised moments need their scales");
  const Operation op(stream);
  const MomentCodes &with_sign = sfx::moment_codes(true), &squares = sfx::moment_codes(false);
  const v16 b1 = set1(o->beta1), b2 = set1(o->beta2), n1 = set1(1.0f - o->beta1), n2 = set1(1.0f - o->beta2);
  const v16 keep = set1(1.0f - o->lr * o->weight_decay), scale = set1(o->grad_scale), eps = set1(o->eps);
  const v16 step = set1(-o->lr), c1 = set1(o->bias_correction1), c2 = set1(o->bias_correction2);
  parallel_ranges(stream, count, 4 * kMomentBlock, (double)count, [&](int64_t begin, int64_t end) {
    float mean[kMomentBlock], square[kMomentBlock], p[kMomentBlock];
    for (int64_t at = begin; at < end; at += kMomentBlock) {
      const int64_t n = least(kMomentBlock, end - at), block = at / kMomentBlock;
      uint8_t *const m8 = static_cast<uint8_t*>(s.m) + at, *const v8 = static_cast<uint8_t*>(s.v) + at;
      float *const m = s.quantized ? mean : static_cast<float*>(s.m) + at, *const v =
                                                                               s.quantized
                                                                                   ? square
                                                                                   : static_cast<float*>(s.v) + at;
      if (s.quantized) {
        widen_codes(with_sign, m8, s.m_scale[block], n, mean);
        widen_codes(squares, v8, s.v_scale[block], n, square);
      }
      float* const out = s.bf16 ? p : static_cast<float*>(p_out) + at;
      for (int64_t i = 0; i < n; i += 16) {
        const int64_t left = n - i;
        const v16 old = s.bf16 ? load_bf16_part(static_cast<const uint16_t*>(p_in) + at + i, left)
                               : load_part(static_cast<const float*>(p_in) + at + i, left);
        const v16 grad = mul(load_part(g + at + i, left), scale);
        const v16 first = fma(b1, load_part(m + i, left), mul(n1, grad));
        const v16 second = fma(b2, load_part(v + i, left), mul(n2, mul(grad, grad)));
        store_part(m + i, first, left);
        store_part(v + i, second, left);
        const v16 update = div(div(first, c1), add(sqrt(div(second, c2)), eps));
        store_part(out + i, fma(step, update, mul(keep, old)), left);
      }
      if (s.bf16) round_to_bf16(p, n, s, at, static_cast<uint16_t*>(p_out) + at);
      if (s.quantized) {
        s.m_scale[block] = narrow_signed(with_sign, mean, n, m8);
        s.v_scale[block] = narrow_squares(squares, square, n, v8);
      }
    }
  });
  return SFX_OK;
}

}  // namespace SFX_NS
