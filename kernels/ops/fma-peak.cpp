// Independent chains of fused multiply-adds in registers: what a core can do at most. For measurements.
#include "operators.h"
#include "v16.h"

namespace SFX_NS {

double fma_work(int64_t steps) {
#if defined(SFX_ISA_AVX512)
  constexpr int kChains = 16;
#elif defined(SFX_ISA_PORTABLE)
  constexpr int kChains = 2;
#else
  constexpr int kChains = 6;
#endif
  v16 x[kChains];
#pragma GCC unroll 16
  for (int i = 0; i < kChains; i++) x[i] = set1((float)i);
  const v16 a = set1(0.5f), b = set1(1.0f);
  for (int64_t step = 0; step < steps; step++)
#pragma GCC unroll 16
    for (int i = 0; i < kChains; i++) x[i] = fma(x[i], a, b);
  v16 sum = zero();
#pragma GCC unroll 16
  for (int i = 0; i < kChains; i++) sum = add(sum, x[i]);
  // The result is used, so that the chains are computed; it is never NaN.
  return sum_lanes(sum) == sum_lanes(sum) ? 2.0 * 16 * kChains * (double)steps : 0.0;
}

}  // namespace SFX_NS
