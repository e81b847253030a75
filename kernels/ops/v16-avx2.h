// v16 on AVX2 with FMA: two registers.
#include <immintrin.h>

namespace SFX_NS {

struct v16 {
  __m256 lo, hi;
};
struct m16 {
  __m256 lo, hi;
};

SFX_INLINE __m256i lanes_below(int n) {  // all ones in the first n of 8 lanes
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

SFX_INLINE v16 set1(float a) { return {_mm256_set1_ps(a), _mm256_set1_ps(a)}; }
SFX_INLINE v16 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
SFX_INLINE v16 load_bf16(const uint16_t* p) {
  const auto half = [](const uint16_t* from) {
    const __m128i bits = _mm_loadu_si128((const __m128i*)from);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  };
  return {half(p), half(p + 8)};
}
// Sixteen E2M1 codes (sign, two bits of exponent, one of mantissa), the low half of a byte first.
SFX_INLINE v16 load_e2m1(const uint8_t* p) {
  int32_t codes[2];
  memcpy(codes, p, sizeof codes);
  const auto half = [](int32_t eight) {
    const __m256i code = _mm256_srlv_epi32(_mm256_set1_epi32(eight), _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
    const __m256 magnitudes = _mm256_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f);
    const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(code, _mm256_set1_epi32(8)), 28);
    // The permutation looks at three bits of an index.
    return _mm256_or_ps(_mm256_permutevar8x32_ps(magnitudes, code), _mm256_castsi256_ps(sign));
  };
  return {half(codes[0]), half(codes[1])};
}
SFX_INLINE void store(float* p, v16 v) {
  _mm256_storeu_ps(p, v.lo);
  _mm256_storeu_ps(p + 8, v.hi);
}
SFX_INLINE v16 load_n(const float* p, int n) {
  return {_mm256_maskload_ps(p, lanes_below(n)), _mm256_maskload_ps(p + 8, lanes_below(n - 8))};
}
SFX_INLINE void store_n(float* p, v16 v, int n) {
  _mm256_maskstore_ps(p, lanes_below(n), v.lo);
  _mm256_maskstore_ps(p + 8, lanes_below(n - 8), v.hi);
}
SFX_INLINE v16 add(v16 a, v16 b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
SFX_INLINE v16 sub(v16 a, v16 b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
SFX_INLINE v16 mul(v16 a, v16 b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
SFX_INLINE v16 div(v16 a, v16 b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
SFX_INLINE v16 sqrt(v16 a) { return {_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)}; }
SFX_INLINE v16 fma(v16 a, v16 b, v16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
SFX_INLINE v16 max(v16 a, v16 b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
SFX_INLINE v16 min(v16 a, v16 b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
SFX_INLINE m16 less(v16 a, v16 b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ)};
}
SFX_INLINE m16 equal(v16 a, v16 b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_EQ_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_EQ_OQ)};
}
SFX_INLINE m16 both(m16 a, m16 b) { return {_mm256_and_ps(a.lo, b.lo), _mm256_and_ps(a.hi, b.hi)}; }
SFX_INLINE m16 either(m16 a, m16 b) { return {_mm256_or_ps(a.lo, b.lo), _mm256_or_ps(a.hi, b.hi)}; }
SFX_INLINE v16 select(m16 m, v16 a, v16 b) {
  return {_mm256_blendv_ps(b.lo, a.lo, m.lo), _mm256_blendv_ps(b.hi, a.hi, m.hi)};
}
SFX_INLINE v16 bits_shift_left_add(v16 a, int by, int32_t plus) {
  const __m256i p = _mm256_set1_epi32(plus);
  return {_mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(_mm256_castps_si256(a.lo), by), p)),
          _mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(_mm256_castps_si256(a.hi), by), p))};
}
SFX_INLINE v16 bits_add(v16 a, int32_t plus) { return bits_shift_left_add(a, 0, plus); }
SFX_INLINE v16 bits_and(v16 a, int32_t mask) {
  const __m256 m = _mm256_castsi256_ps(_mm256_set1_epi32(mask));
  return {_mm256_and_ps(a.lo, m), _mm256_and_ps(a.hi, m)};
}
SFX_INLINE v16 bits_exponent(v16 a) {
  return {_mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_castps_si256(a.lo), 23)),
          _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_castps_si256(a.hi), 23))};
}
SFX_INLINE float sum_lanes(v16 v) {
  __m256 a = _mm256_add_ps(v.lo, v.hi);
  __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  b = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(b, _mm_shuffle_ps(b, b, 1)));
}
SFX_INLINE float max_lanes(v16 v) {
  __m256 a = _mm256_max_ps(v.lo, v.hi);
  __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  b = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(b, _mm_shuffle_ps(b, b, 1)));
}
SFX_INLINE __m256 in_order(__m256 a) {  // undoes the 128-bit halves of a shuffle
  return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(a), 0xd8));
}
SFX_INLINE void deinterleave(v16 a, v16 b, v16* even, v16* odd) {
  even->lo = in_order(_mm256_shuffle_ps(a.lo, a.hi, 0x88));
  even->hi = in_order(_mm256_shuffle_ps(b.lo, b.hi, 0x88));
  odd->lo = in_order(_mm256_shuffle_ps(a.lo, a.hi, 0xdd));
  odd->hi = in_order(_mm256_shuffle_ps(b.lo, b.hi, 0xdd));
}
SFX_INLINE void interleave(v16 even, v16 odd, v16* a, v16* b) {
  const __m256 l0 = _mm256_unpacklo_ps(even.lo, odd.lo), h0 = _mm256_unpackhi_ps(even.lo, odd.lo);
  const __m256 l1 = _mm256_unpacklo_ps(even.hi, odd.hi), h1 = _mm256_unpackhi_ps(even.hi, odd.hi);
  *a = {_mm256_permute2f128_ps(l0, h0, 0x20), _mm256_permute2f128_ps(l0, h0, 0x31)};
  *b = {_mm256_permute2f128_ps(l1, h1, 0x20), _mm256_permute2f128_ps(l1, h1, 0x31)};
}
SFX_INLINE void transpose8(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
  __m256 r[8], t[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++) r[i] = _mm256_loadu_ps(from + i * from_stride);
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
    r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    _mm256_storeu_ps(to + i * to_stride, _mm256_permute2f128_ps(r[i], r[4 + i], 0x20));
    _mm256_storeu_ps(to + (4 + i) * to_stride, _mm256_permute2f128_ps(r[i], r[4 + i], 0x31));
  }
}
SFX_INLINE void transpose16(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
  transpose8(from, from_stride, to, to_stride);
  transpose8(from + 8, from_stride, to + 8 * to_stride, to_stride);
  transpose8(from + 8 * from_stride, from_stride, to + 8, to_stride);
  transpose8(from + 8 * from_stride + 8, from_stride, to + 8 * to_stride + 8, to_stride);
}

}  // namespace SFX_NS
