// The words of CUDA C++ for a plain C++ compiler, so that kernel sources compile unmodified: a thread of a block is a
// fiber, what a warp does together is a rendezvous of its 32 fibers. Kernels are compiled with -fsanitize=thread, whose
// calls before every load and store go to memory-hooks.cpp and not to a sanitizer's library: that is how plain pointers
// into shared and device memory are watched. Shared memory is dynamic only (sfx::shared_memory), since a plain compiler
// cannot place __shared__ variables where they are watched.
#ifndef SINKFLEX_CUDA_EMULATION_CUDA_H
#define SINKFLEX_CUDA_EMULATION_CUDA_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};
struct alignas(8) uint2 {
  uint32_t x, y;
};
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};

namespace emulation {

// Where the running fiber stands; set at every switch.
struct Place {
  uint3 thread, block;
  dim3 threads, blocks;
};
extern Place place;

// One thing that the lanes of a warp do together. Immediate operands are part of it: lanes that disagree have diverged.
enum Operation : int32_t {
  kShuffle = 1,
  kShuffleXor,
  kShuffleUp,
  kShuffleDown,
  kBallot,
  kSyncWarp,
  kMmaBf16,
  kMmaF16,
  kLoadMatrix,
  kLoadMatrixTransposed,
};
// Operands go by value, so that a kernel's registers stay registers.
struct Four {
  float x[4];
};
uint32_t exchange_bits(Operation, uint32_t value, int argument);
void sync_warp();
Four multiply_add(Operation, uint4 a, uint2 b, Four c);
uint4 load_matrices(Operation, const void* row);
void block_barrier();

void* shared_memory();
void copy_async(void* shared, const void* global, int bytes, int zeros);
void copy_async_commit();
void copy_async_wait(int groups_left);
float atomic_add(float* to, float value);
int32_t atomic_add(int32_t* to, int32_t value);
uint32_t atomic_add(uint32_t* to, uint32_t value);

template <class T>
__forceinline__ T exchange(Operation op, T value, int argument) {
  static_assert(sizeof(T) == 4);
  return __builtin_bit_cast(T, exchange_bits(op, __builtin_bit_cast(uint32_t, value), argument));
}

}  // namespace emulation

#define threadIdx (emulation::place.thread)
#define blockIdx (emulation::place.block)
#define blockDim (emulation::place.threads)
#define gridDim (emulation::place.blocks)

// Masks are always full: a kernel of ours converges before it speaks to its warp.
inline void __syncthreads() { emulation::block_barrier(); }
inline void __syncwarp() { emulation::sync_warp(); }
template <class T>
__forceinline__ T __shfl_sync(unsigned, T value, int source) {
  return emulation::exchange(emulation::kShuffle, value, source);
}
template <class T>
__forceinline__ T __shfl_xor_sync(unsigned, T value, int mask) {
  return emulation::exchange(emulation::kShuffleXor, value, mask);
}
template <class T>
__forceinline__ T __shfl_up_sync(unsigned, T value, int delta) {
  return emulation::exchange(emulation::kShuffleUp, value, delta);
}
template <class T>
__forceinline__ T __shfl_down_sync(unsigned, T value, int delta) {
  return emulation::exchange(emulation::kShuffleDown, value, delta);
}
inline unsigned __ballot_sync(unsigned, int predicate) {
  return emulation::exchange(emulation::kBallot, (uint32_t)(predicate != 0), 0);
}
template <class T>
inline T atomicAdd(T* to, T value) {
  return emulation::atomic_add(to, value);
}

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float __uint_as_float(uint32_t x) { return __builtin_bit_cast(float, x); }
inline uint32_t __float_as_uint(float x) { return __builtin_bit_cast(uint32_t, x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }

#endif
