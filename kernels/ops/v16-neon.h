// v16 on NEON: four registers.
#include <arm_neon.h>

namespace SFX_NS {

struct v16 {
  float32x4_t x[4];
};
struct m16 {
  uint32x4_t x[4];
};

#define SFX_QUADS _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++)
SFX_INLINE v16 set1(float a) {
  v16 r;
  SFX_QUADS r.x[i] = vdupq_n_f32(a);
  return r;
}
SFX_INLINE v16 load(const float* p) {
  v16 r;
  SFX_QUADS r.x[i] = vld1q_f32(p + 4 * i);
  return r;
}
SFX_INLINE v16 load_bf16(const uint16_t* p) {
  v16 r;
  SFX_QUADS r.x[i] = vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + 4 * i), 16));
  return r;
}
// Sixteen E2M1 codes (sign, two bits of exponent, one of mantissa), the low half of a byte first.
SFX_INLINE v16 load_e2m1(const uint8_t* p) {
  static const float values[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                   -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
  float lanes[16];
  for (int i = 0; i < 16; i++) lanes[i] = values[p[i / 2] >> (i % 2 * 4) & 15];
  return load(lanes);
}
SFX_INLINE void store(float* p, v16 v) { SFX_QUADS vst1q_f32(p + 4 * i, v.x[i]); }
SFX_INLINE v16 load_n(const float* p, int n) {
  float lanes[16] = {};
  for (int i = 0; i < n && i < 16; i++) lanes[i] = p[i];
  return load(lanes);
}
SFX_INLINE void store_n(float* p, v16 v, int n) {
  float lanes[16];
  store(lanes, v);
  for (int i = 0; i < n && i < 16; i++) p[i] = lanes[i];
}
SFX_INLINE v16 add(v16 a, v16 b) {
  v16 r;
  SFX_QUADS r.x[i] = vaddq_f32(a.x[i], b.x[i]);
  return r;
}
SFX_INLINE v16 sub(v16 a, v16 b) {
  v16 r;
  SFX_QUADS r.x[i] = vsubq_f32(a.x[i], b.x[i]);
  return r;
}
SFX_INLINE v16 mul(v16 a, v16 b) {
  v16 r;
  SFX_QUADS r.x[i] = vmulq_f32(a.x[i], b.x[i]);
  return r;
}
SFX_INLINE v16 div(v16 a, v16 b) {
  v16 r;
  SFX_QUADS r.x[i] = vdivq_f32(a.x[i], b.x[i]);
  return r;
}
SFX_INLINE v16 sqrt(v16 a) {
  v16 r;
  SFX_QUADS r.x[i] = vsqrtq_f32(a.x[i]);
  return r;
}
SFX_INLINE v16 fma(v16 a, v16 b, v16 c) {
  v16 r;
  SFX_QUADS r.x[i] = vfmaq_f32(c.x[i], a.x[i], b.x[i]);
  return r;
}
SFX_INLINE v16 max(v16 a, v16 b) {
  v16 r;
  SFX_QUADS r.x[i] = vbslq_f32(vcgtq_f32(a.x[i], b.x[i]), a.x[i], b.x[i]);
  return r;
}
SFX_INLINE v16 min(v16 a, v16 b) {
  v16 r;
  SFX_QUADS r.x[i] = vbslq_f32(vcltq_f32(a.x[i], b.x[i]), a.x[i], b.x[i]);
  return r;
}
SFX_INLINE m16 less(v16 a, v16 b) {
  m16 r;
  SFX_QUADS r.x[i] = vcltq_f32(a.x[i], b.x[i]);
  return r;
}
SFX_INLINE m16 equal(v16 a, v16 b) {
  m16 r;
  SFX_QUADS r.x[i] = vceqq_f32(a.x[i], b.x[i]);
  return r;
}
SFX_INLINE m16 both(m16 a, m16 b) {
  m16 r;
  SFX_QUADS r.x[i] = vandq_u32(a.x[i], b.x[i]);
  return r;
}
SFX_INLINE m16 either(m16 a, m16 b) {
  m16 r;
  SFX_QUADS r.x[i] = vorrq_u32(a.x[i], b.x[i]);
  return r;
}
SFX_INLINE v16 select(m16 m, v16 a, v16 b) {
  v16 r;
  SFX_QUADS r.x[i] = vbslq_f32(m.x[i], a.x[i], b.x[i]);
  return r;
}
SFX_INLINE v16 bits_shift_left_add(v16 a, int by, int32_t plus) {
  v16 r;
  SFX_QUADS r.x[i] =
      vreinterpretq_f32_s32(vaddq_s32(vshlq_s32(vreinterpretq_s32_f32(a.x[i]), vdupq_n_s32(by)), vdupq_n_s32(plus)));
  return r;
}
SFX_INLINE v16 bits_add(v16 a, int32_t plus) { return bits_shift_left_add(a, 0, plus); }
SFX_INLINE v16 bits_and(v16 a, int32_t mask) {
  v16 r;
  SFX_QUADS r.x[i] = vreinterpretq_f32_s32(vandq_s32(vreinterpretq_s32_f32(a.x[i]), vdupq_n_s32(mask)));
  return r;
}
SFX_INLINE v16 bits_exponent(v16 a) {
  v16 r;
  SFX_QUADS r.x[i] = vcvtq_f32_s32(vshrq_n_s32(vreinterpretq_s32_f32(a.x[i]), 23));
  return r;
}
SFX_INLINE float32x4_t larger(float32x4_t a, float32x4_t b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
SFX_INLINE float sum_lanes(v16 v) {
  const float32x4_t a = vaddq_f32(vaddq_f32(v.x[0], v.x[2]), vaddq_f32(v.x[1], v.x[3]));
  const float32x2_t b = vadd_f32(vget_low_f32(a), vget_high_f32(a));
  return vget_lane_f32(b, 0) + vget_lane_f32(b, 1);
}
SFX_INLINE float max_lanes(v16 v) {
  const float32x4_t a = larger(larger(v.x[0], v.x[2]), larger(v.x[1], v.x[3]));
  float r[4];
  vst1q_f32(r, a);
  const float s = r[0] > r[2] ? r[0] : r[2], t = r[1] > r[3] ? r[1] : r[3];
  return s > t ? s : t;
}
SFX_INLINE void deinterleave(v16 a, v16 b, v16* even, v16* odd) {
  for (int i = 0; i < 2; i++) {
    even->x[i] = vuzp1q_f32(a.x[2 * i], a.x[2 * i + 1]), odd->x[i] = vuzp2q_f32(a.x[2 * i], a.x[2 * i + 1]);
    even->x[2 + i] = vuzp1q_f32(b.x[2 * i], b.x[2 * i + 1]), odd->x[2 + i] = vuzp2q_f32(b.x[2 * i], b.x[2 * i + 1]);
  }
}
SFX_INLINE void interleave(v16 even, v16 odd, v16* a, v16* b) {
  for (int i = 0; i < 2; i++) {
    a->x[2 * i] = vzip1q_f32(even.x[i], odd.x[i]), a->x[2 * i + 1] = vzip2q_f32(even.x[i], odd.x[i]);
    b->x[2 * i] = vzip1q_f32(even.x[2 + i], odd.x[2 + i]), b->x[2 * i + 1] = vzip2q_f32(even.x[2 + i], odd.x[2 + i]);
  }
}
SFX_INLINE void transpose16(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
  for (int i = 0; i < 16; i += 4)
    for (int j = 0; j < 16; j += 4) {
      const float* f = from + i * from_stride + j;
      float* t = to + j * to_stride + i;
      const float32x4_t r0 = vld1q_f32(f), r1 = vld1q_f32(f + from_stride);
      const float32x4_t r2 = vld1q_f32(f + 2 * from_stride), r3 = vld1q_f32(f + 3 * from_stride);
      const float32x4_t a = vzip1q_f32(r0, r2), b = vzip2q_f32(r0, r2);
      const float32x4_t c = vzip1q_f32(r1, r3), d = vzip2q_f32(r1, r3);
      vst1q_f32(t, vzip1q_f32(a, c));
      vst1q_f32(t + to_stride, vzip2q_f32(a, c));
      vst1q_f32(t + 2 * to_stride, vzip1q_f32(b, d));
      vst1q_f32(t + 3 * to_stride, vzip2q_f32(b, d));
    }
}
#undef SFX_QUADS

}  // namespace SFX_NS
