// v16 on AVX-512: one register.
#include <immintrin.h>

namespace SFX_NS {

struct v16 {
  __m512 x;
};
struct m16 {
  __mmask16 x;
};

SFX_INLINE v16 set1(float a) { return {_mm512_set1_ps(a)}; }
SFX_INLINE v16 load(const float* p) { return {_mm512_loadu_ps(p)}; }
SFX_INLINE v16 load_bf16(const uint16_t* p) {
  const __m256i bits = _mm256_loadu_si256((const __m256i*)p);
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
}
// Sixteen E2M1 codes (sign, two bits of exponent, one of mantissa), the low half of a byte first.
SFX_INLINE v16 load_e2m1(const uint8_t* p) {
  int32_t codes[2];
  memcpy(codes, p, sizeof codes);
  const __m512i eight = _mm512_inserti64x4(_mm512_set1_epi32(codes[0]), _mm256_set1_epi32(codes[1]), 1);
  const __m512i shift = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
  const __m512 values = _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f, -1.5f,
                                       -2.0f, -3.0f, -4.0f, -6.0f);
  return {_mm512_permutexvar_ps(_mm512_srlv_epi32(eight, shift), values)};  // which looks at four bits of an index
}
SFX_INLINE void store(float* p, v16 v) { _mm512_storeu_ps(p, v.x); }
SFX_INLINE v16 load_n(const float* p, int n) { return {_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p)}; }
SFX_INLINE void store_n(float* p, v16 v, int n) { _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), v.x); }
SFX_INLINE v16 add(v16 a, v16 b) { return {_mm512_add_ps(a.x, b.x)}; }
SFX_INLINE v16 sub(v16 a, v16 b) { return {_mm512_sub_ps(a.x, b.x)}; }
SFX_INLINE v16 mul(v16 a, v16 b) { return {_mm512_mul_ps(a.x, b.x)}; }
SFX_INLINE v16 div(v16 a, v16 b) { return {_mm512_div_ps(a.x, b.x)}; }
SFX_INLINE v16 sqrt(v16 a) { return {_mm512_sqrt_ps(a.x)}; }
SFX_INLINE v16 fma(v16 a, v16 b, v16 c) { return {_mm512_fmadd_ps(a.x, b.x, c.x)}; }
SFX_INLINE v16 max(v16 a, v16 b) { return {_mm512_max_ps(a.x, b.x)}; }  // a > b ? a : b
SFX_INLINE v16 min(v16 a, v16 b) { return {_mm512_min_ps(a.x, b.x)}; }  // a < b ? a : b
SFX_INLINE m16 less(v16 a, v16 b) { return {_mm512_cmp_ps_mask(a.x, b.x, _CMP_LT_OQ)}; }
SFX_INLINE m16 equal(v16 a, v16 b) { return {_mm512_cmp_ps_mask(a.x, b.x, _CMP_EQ_OQ)}; }
SFX_INLINE m16 both(m16 a, m16 b) { return {(__mmask16)(a.x & b.x)}; }
SFX_INLINE m16 either(m16 a, m16 b) { return {(__mmask16)(a.x | b.x)}; }
SFX_INLINE v16 select(m16 m, v16 a, v16 b) { return {_mm512_mask_blend_ps(m.x, b.x, a.x)}; }  // m ? a : b
// Integer steps on the bit pattern, for exp and log.
SFX_INLINE v16 bits_shift_left_add(v16 a, int by, int32_t plus) {
  return {_mm512_castsi512_ps(
      _mm512_add_epi32(_mm512_slli_epi32(_mm512_castps_si512(a.x), (unsigned)by), _mm512_set1_epi32(plus)))};
}
SFX_INLINE v16 bits_add(v16 a, int32_t plus) {
  return {_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a.x), _mm512_set1_epi32(plus)))};
}
SFX_INLINE v16 bits_and(v16 a, int32_t mask) {
  return {_mm512_castsi512_ps(_mm512_and_epi32(_mm512_castps_si512(a.x), _mm512_set1_epi32(mask)))};
}
SFX_INLINE v16 bits_exponent(v16 a) {  // float(arithmetic shift right by 23)
  return {_mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_castps_si512(a.x), 23))};
}
// The fixed tree of every reduction: lane i with i + 8, then + 4, + 2, + 1.
SFX_INLINE float sum_lanes(v16 v) {
  __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v.x), _mm512_extractf32x8_ps(v.x, 1));
  __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  b = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(b, _mm_shuffle_ps(b, b, 1)));
}
SFX_INLINE float max_lanes(v16 v) {
  __m256 a = _mm256_max_ps(_mm512_castps512_ps256(v.x), _mm512_extractf32x8_ps(v.x, 1));
  __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  b = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(b, _mm_shuffle_ps(b, b, 1)));
}
// Even and odd elements of 32 consecutive floats, and back.
SFX_INLINE void deinterleave(v16 a, v16 b, v16* even, v16* odd) {
  const __m512i e = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i o = _mm512_add_epi32(e, _mm512_set1_epi32(1));
  even->x = _mm512_permutex2var_ps(a.x, e, b.x);
  odd->x = _mm512_permutex2var_ps(a.x, o, b.x);
}
SFX_INLINE void interleave(v16 even, v16 odd, v16* a, v16* b) {
  const __m512i l = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  a->x = _mm512_permutex2var_ps(even.x, l, odd.x);
  b->x = _mm512_permutex2var_ps(even.x, _mm512_add_epi32(l, _mm512_set1_epi32(8)), odd.x);
}
// to[j * to_stride + i] = from[i * from_stride + j] for i, j < 16
SFX_INLINE void transpose16(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
  __m512 r[16], t[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; i++) r[i] = _mm512_loadu_ps(from + i * from_stride);
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
    r[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xee);
    r[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    r[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    t[i] = _mm512_shuffle_f32x4(r[i], r[4 + i], 0x88);
    t[4 + i] = _mm512_shuffle_f32x4(r[i], r[4 + i], 0xdd);
    t[8 + i] = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0x88);
    t[12 + i] = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0xdd);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    _mm512_storeu_ps(to + i * to_stride, _mm512_shuffle_f32x4(t[i], t[8 + i], 0x88));
    _mm512_storeu_ps(to + (8 + i) * to_stride, _mm512_shuffle_f32x4(t[i], t[8 + i], 0xdd));
    _mm512_storeu_ps(to + (4 + i) * to_stride, _mm512_shuffle_f32x4(t[4 + i], t[12 + i], 0x88));
    _mm512_storeu_ps(to + (12 + i) * to_stride, _mm512_shuffle_f32x4(t[4 + i], t[12 + i], 0xdd));
  }
}

}  // namespace SFX_NS
