// v16 as an array: the reference of the other instruction sets, for machines without a path of their own. Fused
// multiply-adds come from the C library when the compiler may not assume the instruction.
namespace SFX_NS {

struct v16 {
  float x[16];
};
struct m16 {
  uint32_t x[16];
};

#define SFX_LANES for (int i = 0; i < 16; i++)
SFX_INLINE v16 set1(float a) {
  v16 r;
  SFX_LANES r.x[i] = a;
  return r;
}
SFX_INLINE v16 load(const float* p) {
  v16 r;
  memcpy(r.x, p, sizeof r.x);
  return r;
}
SFX_INLINE v16 load_bf16(const uint16_t* p) {
  uint32_t bits[16];
  for (int i = 0; i < 16; i++) bits[i] = (uint32_t)p[i] << 16;
  v16 r;
  memcpy(r.x, bits, sizeof r.x);
  return r;
}
// Sixteen E2M1 codes (sign, two bits of exponent, one of mantissa), the low half of a byte first.
SFX_INLINE v16 load_e2m1(const uint8_t* p) {
  static const float values[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                   -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
  v16 r;
  SFX_LANES r.x[i] = values[p[i / 2] >> (i % 2 * 4) & 15];
  return r;
}
SFX_INLINE void store(float* p, v16 v) { memcpy(p, v.x, sizeof v.x); }
SFX_INLINE v16 load_n(const float* p, int n) {
  v16 r = set1(0.0f);
  for (int i = 0; i < n && i < 16; i++) r.x[i] = p[i];
  return r;
}
SFX_INLINE void store_n(float* p, v16 v, int n) {
  for (int i = 0; i < n && i < 16; i++) p[i] = v.x[i];
}
SFX_INLINE v16 add(v16 a, v16 b) {
  v16 r;
  SFX_LANES r.x[i] = a.x[i] + b.x[i];
  return r;
}
SFX_INLINE v16 sub(v16 a, v16 b) {
  v16 r;
  SFX_LANES r.x[i] = a.x[i] - b.x[i];
  return r;
}
SFX_INLINE v16 mul(v16 a, v16 b) {
  v16 r;
  SFX_LANES r.x[i] = a.x[i] * b.x[i];
  return r;
}
SFX_INLINE v16 div(v16 a, v16 b) {
  v16 r;
  SFX_LANES r.x[i] = a.x[i] / b.x[i];
  return r;
}
SFX_INLINE v16 max(v16 a, v16 b) {
  v16 r;
  SFX_LANES r.x[i] = a.x[i] > b.x[i] ? a.x[i] : b.x[i];
  return r;
}
SFX_INLINE v16 min(v16 a, v16 b) {
  v16 r;
  SFX_LANES r.x[i] = a.x[i] < b.x[i] ? a.x[i] : b.x[i];
  return r;
}
SFX_INLINE v16 sqrt(v16 a) {
  v16 r;
  SFX_LANES r.x[i] = __builtin_sqrtf(a.x[i]);
  return r;
}
SFX_INLINE v16 fma(v16 a, v16 b, v16 c) {
  v16 r;
  SFX_LANES r.x[i] = __builtin_fmaf(a.x[i], b.x[i], c.x[i]);
  return r;
}
SFX_INLINE m16 less(v16 a, v16 b) {
  m16 r;
  SFX_LANES r.x[i] = a.x[i] < b.x[i];
  return r;
}
SFX_INLINE m16 equal(v16 a, v16 b) {
  m16 r;
  SFX_LANES r.x[i] = a.x[i] == b.x[i];
  return r;
}
SFX_INLINE m16 both(m16 a, m16 b) {
  m16 r;
  SFX_LANES r.x[i] = a.x[i] & b.x[i];
  return r;
}
SFX_INLINE m16 either(m16 a, m16 b) {
  m16 r;
  SFX_LANES r.x[i] = a.x[i] | b.x[i];
  return r;
}
SFX_INLINE v16 select(m16 m, v16 a, v16 b) {
  v16 r;
  SFX_LANES r.x[i] = m.x[i] ? a.x[i] : b.x[i];
  return r;
}
SFX_INLINE uint32_t bits_of(float a) {
  uint32_t b;
  memcpy(&b, &a, 4);
  return b;
}
SFX_INLINE float float_of(uint32_t b) {
  float a;
  memcpy(&a, &b, 4);
  return a;
}
SFX_INLINE v16 bits_shift_left_add(v16 a, int by, int32_t plus) {
  v16 r;
  SFX_LANES r.x[i] = float_of((bits_of(a.x[i]) << by) + (uint32_t)plus);
  return r;
}
SFX_INLINE v16 bits_add(v16 a, int32_t plus) {
  v16 r;
  SFX_LANES r.x[i] = float_of(bits_of(a.x[i]) + (uint32_t)plus);
  return r;
}
SFX_INLINE v16 bits_and(v16 a, int32_t mask) {
  v16 r;
  SFX_LANES r.x[i] = float_of(bits_of(a.x[i]) & (uint32_t)mask);
  return r;
}
SFX_INLINE v16 bits_exponent(v16 a) {
  v16 r;
  SFX_LANES r.x[i] = (float)((int32_t)bits_of(a.x[i]) >> 23);
  return r;
}
SFX_INLINE float sum_lanes(v16 v) {
  float* a = v.x;
  for (int w = 8; w > 0; w >>= 1)
    for (int i = 0; i < w; i++) a[i] = a[i] + a[i + w];
  return a[0];
}
SFX_INLINE float max_lanes(v16 v) {
  float* a = v.x;
  for (int w = 8; w > 0; w >>= 1)
    for (int i = 0; i < w; i++) a[i] = a[i] > a[i + w] ? a[i] : a[i + w];
  return a[0];
}
SFX_INLINE void deinterleave(v16 a, v16 b, v16* even, v16* odd) {
  for (int i = 0; i < 8; i++) {
    even->x[i] = a.x[2 * i], odd->x[i] = a.x[2 * i + 1];
    even->x[8 + i] = b.x[2 * i], odd->x[8 + i] = b.x[2 * i + 1];
  }
}
SFX_INLINE void interleave(v16 even, v16 odd, v16* a, v16* b) {
  for (int i = 0; i < 8; i++) {
    a->x[2 * i] = even.x[i], a->x[2 * i + 1] = odd.x[i];
    b->x[2 * i] = even.x[8 + i], b->x[2 * i + 1] = odd.x[8 + i];
  }
}
SFX_INLINE void transpose16(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
  for (int i = 0; i < 16; i++)
    for (int j = 0; j < 16; j++) to[j * to_stride + i] = from[i * from_stride + j];
}
#undef SFX_LANES

}  // namespace SFX_NS
