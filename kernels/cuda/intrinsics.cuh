// The instructions that kernels use beyond C++: PTX under nvcc, the emulated machine otherwise. Kernels include this
// file alone, use dynamic shared memory only, speak to whole warps only, and are started by SFX_LAUNCH (launch.h).
//
// mma.m16n8k16, lane = 4 g + t: A (4 registers of 2 values): (g, 2t), (g + 8, 2t), (g, 2t + 8), (g + 8, 2t + 8);
// B (2): rows k = 2t and 2t + 8, column g; C (4 floats): (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1).
// So C of one product is A of the next once two neighbours are packed together.
#ifndef SINKFLEX_CUDA_INTRINSICS_CUH
#define SINKFLEX_CUDA_INTRINSICS_CUH

#ifdef __CUDACC__
#include <stdint.h>
#else
#include "emulation/cuda.h"
#endif

namespace sfx {

// 16-bit storage formats; a value is its bits.
struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};

constexpr int kWarpSize = 32;
constexpr unsigned kWholeWarp = 0xffffffffu;
constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;
#define SFX_INFINITE __uint_as_float(0x7f800000u)

#define SFX_DEVICE __device__ __forceinline__

#ifdef __CUDACC__

extern __shared__ __align__(128) unsigned char shared_bytes[];
SFX_DEVICE unsigned char* shared_memory() { return shared_bytes; }

SFX_DEVICE uint32_t shared_address(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }

// 16 bytes from global to shared memory, or zeros; there after its group was waited for, for others after a barrier.
SFX_DEVICE void copy_async(void* shared, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global),
               "r"(valid ? 16 : 0)
               : "memory");
}
SFX_DEVICE void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kGroupsLeft>
SFX_DEVICE void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroupsLeft) : "memory");
}

// Four 8 x 8 matrices of 16-bit values; lane 8 m + r brings the address of row r of matrix m.
SFX_DEVICE void load_matrices(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
SFX_DEVICE void load_matrices_transposed(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

// c += a b
SFX_DEVICE void multiply_add(Bf16, float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
SFX_DEVICE void multiply_add(F16, float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two floats rounded to nearest, `low` in the low half.
SFX_DEVICE uint32_t pack(Bf16, float low, float high) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
SFX_DEVICE uint32_t pack(F16, float low, float high) {
  uint32_t r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
SFX_DEVICE float widen(F16 x) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(x.bits));
  return f;
}

SFX_DEVICE float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

#else

SFX_DEVICE unsigned char* shared_memory() { return static_cast<unsigned char*>(emulation::shared_memory()); }

SFX_DEVICE void copy_async(void* shared, const void* global, bool valid) {
  emulation::copy_async(shared, global, valid ? 16 : 0, valid ? 0 : 16);
}
SFX_DEVICE void copy_async_commit() { emulation::copy_async_commit(); }
template <int kGroupsLeft>
SFX_DEVICE void copy_async_wait() {
  emulation::copy_async_wait(kGroupsLeft);
}

SFX_DEVICE void load_matrices(uint32_t (&r)[4], const void* row) {
  const uint4 x = emulation::load_matrices(emulation::kLoadMatrix, row);
  r[0] = x.x, r[1] = x.y, r[2] = x.z, r[3] = x.w;
}
SFX_DEVICE void load_matrices_transposed(uint32_t (&r)[4], const void* row) {
  const uint4 x = emulation::load_matrices(emulation::kLoadMatrixTransposed, row);
  r[0] = x.x, r[1] = x.y, r[2] = x.z, r[3] = x.w;
}

SFX_DEVICE void multiply_add_as(emulation::Operation op, float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                uint32_t b1) {
  const emulation::Four sum =
      emulation::multiply_add(op, {a[0], a[1], a[2], a[3]}, {b0, b1}, {{c[0], c[1], c[2], c[3]}});
  c[0] = sum.x[0], c[1] = sum.x[1], c[2] = sum.x[2], c[3] = sum.x[3];
}
SFX_DEVICE void multiply_add(Bf16, float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  multiply_add_as(emulation::kMmaBf16, c, a, b0, b1);
}
SFX_DEVICE void multiply_add(F16, float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  multiply_add_as(emulation::kMmaF16, c, a, b0, b1);
}

SFX_DEVICE uint32_t round_bf16(float x) {
  const uint32_t bits = __float_as_uint(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;
  return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}
inline uint32_t round_f16(float x) {
  const uint32_t bits = __float_as_uint(x), sign = (bits >> 16) & 0x8000u, size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) return 0x7fffu;
  if (size >= 0x477ff000u) return sign | 0x7c00u;  // rounds to 65536 or more
  if (size < 0x38800000u) {                        // below the normal numbers: units of 2^-24
    const float units = nearbyintf(__uint_as_float(size) * 0x1p24f);
    return sign | (uint32_t)units;
  }
  const uint32_t rounded = size + 0xfffu + ((size >> 13) & 1u);
  return sign | ((rounded >> 13) - (112u << 10));
}
SFX_DEVICE uint32_t pack(Bf16, float low, float high) { return round_bf16(low) | round_bf16(high) << 16; }
SFX_DEVICE uint32_t pack(F16, float low, float high) { return round_f16(low) | round_f16(high) << 16; }
inline float widen(F16 x) {
  const uint32_t sign = (x.bits & 0x8000u) << 16, exponent = (x.bits >> 10) & 31u, fraction = x.bits & 0x3ffu;
  if (exponent == 31) return __uint_as_float(sign | 0x7f800000u | fraction << 13);
  if (exponent == 0) return __uint_as_float(sign | 0x3f800000u) * (float)fraction * 0x1p-24f;
  return __uint_as_float(sign | (exponent + 112u) << 23 | fraction << 13);
}

SFX_DEVICE float exp2_fast(float x) { return exp2f(x); }

#endif

SFX_DEVICE float widen(Bf16 x) { return __uint_as_float((uint32_t)x.bits << 16); }
SFX_DEVICE float widen(float x) { return x; }
SFX_DEVICE void narrow(float x, float* to) { *to = x; }
template <class T>
SFX_DEVICE void narrow(float x, T* to) {
  to->bits = (uint16_t)pack(T{}, x, 0.0f);
}

}  // namespace sfx
#endif
