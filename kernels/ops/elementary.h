// exp, log and sigmoid on sixteen lanes: polynomials with explicit fma, so that every instruction set returns the same
// bits. exp: error below 1.5 ulp; exactly 1 at 0; 0 below -86.5 (so never a subnormal), infinity above 88.7228. log:
// error below 2 ulp.
#ifndef SINKFLEX_OPS_ELEMENTARY_H
#define SINKFLEX_OPS_ELEMENTARY_H

#include "v16.h"

namespace SFX_NS {

#define SFX_INFINITY __builtin_inff()

// exp(x) / 2^n with x = n ln 2 + r; n sits in the low bits of *magic_n, after adding 1.5 * 2^23.
SFX_INLINE v16 exp_parts(v16 x, v16* magic_n) {
  const v16 magic = set1(12582912.0f);
  const v16 t = fma(x, set1(1.44269504088896341f), magic);
  const v16 n = sub(t, magic);
  v16 r = fma(n, set1(-0.693359375f), x);
  r = fma(n, set1(2.12194440e-4f), r);
  v16 p = set1(1.9875691500e-4f);
  p = fma(p, r, set1(1.3981999507e-3f));
  p = fma(p, r, set1(8.3334519073e-3f));
  p = fma(p, r, set1(4.1665795894e-2f));
  p = fma(p, r, set1(1.6666665459e-1f));
  p = fma(p, r, set1(5.0000001201e-1f));
  *magic_n = t;
  return add(fma(p, mul(r, r), r), set1(1.0f));
}

SFX_INLINE v16 exp(v16 x) {
  v16 t;
  const v16 p = exp_parts(x, &t);
  const v16 scale = bits_shift_left_add(t, 23, 126 << 23);  // 2^(n-1): n may be 128
  v16 y = mul(mul(p, scale), set1(2.0f));
  y = select(less(x, set1(-86.5f)), zero(), y);
  return select(less(set1(88.7228317f), x), set1(SFX_INFINITY), y);
}

// The same bits for x <= 0 (or NaN), two steps shorter: what a softmax needs.
SFX_INLINE v16 exp_down(v16 x) {
  v16 t;
  const v16 p = exp_parts(x, &t);
  return select(less(x, set1(-86.5f)), zero(), mul(p, bits_shift_left_add(t, 23, 127 << 23)));
}

SFX_INLINE v16 log(v16 x) {
  const m16 tiny = less(x, set1(1.17549435e-38f));
  const v16 a = select(tiny, mul(x, set1(8388608.0f)), x);
  const v16 shifted = bits_add(a, 0x3f800000 - 0x3f3504f3);
  v16 e = sub(bits_exponent(shifted), set1(127.0f));
  e = select(tiny, sub(e, set1(23.0f)), e);
  const v16 f = sub(bits_add(bits_and(shifted, 0x007fffff), 0x3f3504f3), set1(1.0f));  // [sqrt(1/2), sqrt 2) - 1
  v16 p = set1(7.0376836292e-2f);
  p = fma(p, f, set1(-1.1514610310e-1f));
  p = fma(p, f, set1(1.1676998740e-1f));
  p = fma(p, f, set1(-1.2420140846e-1f));
  p = fma(p, f, set1(1.4249322787e-1f));
  p = fma(p, f, set1(-1.6668057665e-1f));
  p = fma(p, f, set1(2.0000714765e-1f));
  p = fma(p, f, set1(-2.4999993993e-1f));
  p = fma(p, f, set1(3.3333331174e-1f));
  const v16 f2 = mul(f, f);
  v16 y = mul(mul(f, f2), p);
  y = fma(e, set1(-2.12194440e-4f), y);
  y = fma(f2, set1(-0.5f), y);
  y = fma(e, set1(0.693359375f), add(f, y));
  y = select(equal(x, zero()), set1(-SFX_INFINITY), y);
  y = select(equal(x, set1(SFX_INFINITY)), x, y);
  y = select(less(x, zero()), set1(__builtin_nanf("")), y);
  return select(equal(x, x), y, x);
}

SFX_INLINE v16 sigmoid(v16 x) { return div(set1(1.0f), add(set1(1.0f), exp(negate(x)))); }

SFX_INLINE float exp1(float x) { return first_lane(exp(set1(x))); }
SFX_INLINE float log1(float x) { return first_lane(log(set1(x))); }

}  // namespace SFX_NS
#endif
