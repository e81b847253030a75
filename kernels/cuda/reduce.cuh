// Sums and maxima over the lanes of a warp and the threads of a block, in a fixed order: the same bits on every run.
#ifndef SINKFLEX_CUDA_REDUCE_CUH
#define SINKFLEX_CUDA_REDUCE_CUH

#include "intrinsics.cuh"

namespace sfx {

SFX_DEVICE float warp_sum(float x) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) x += __shfl_xor_sync(kWholeWarp, x, mask);
  return x;
}
SFX_DEVICE float warp_max(float x) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) x = fmaxf(x, __shfl_xor_sync(kWholeWarp, x, mask));
  return x;
}
SFX_DEVICE int warp_sum(int x) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) x += __shfl_xor_sync(kWholeWarp, x, mask);
  return x;
}

// The larger value, of equal ones the lower id; id < 0: none.
struct Best {
  float value;
  int id;
};
SFX_DEVICE Best better(Best a, Best b) {
  const bool second = b.id >= 0 && (a.id < 0 || b.value > a.value || (b.value == a.value && b.id < a.id));
  return second ? b : a;
}
SFX_DEVICE Best warp_best(Best x) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2)
    x = better(x, {__shfl_xor_sync(kWholeWarp, x.value, mask), __shfl_xor_sync(kWholeWarp, x.id, mask)});
  return x;
}

// Over a block of whole warps, the same for every thread. `each`: 32 elements of shared memory that are free on entry
// and again on return. Call with all threads.
template <class T, class Join, class WarpJoin>
SFX_DEVICE T block_join(T x, T none, T* each, const Join& join, const WarpJoin& warp_join) {
  const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize, warps = blockDim.x / kWarpSize;
  x = warp_join(x);
  if (lane == 0) each[warp] = x;
  __syncthreads();
  T all = none;
  for (int w = 0; w < warps; w++) all = join(all, each[w]);
  __syncthreads();
  return all;
}
SFX_DEVICE float block_sum(float x, float* each) {
  return block_join(x, 0.0f, each, [](float a, float b) { return a + b; }, [](float a) { return warp_sum(a); });
}
SFX_DEVICE int block_sum(int x, int* each) {
  return block_join(x, 0, each, [](int a, int b) { return a + b; }, [](int a) { return warp_sum(a); });
}
SFX_DEVICE float block_max(float x, float* each) {
  return block_join(
      x, -SFX_INFINITE, each, [](float a, float b) { return fmaxf(a, b); }, [](float a) { return warp_max(a); });
}
SFX_DEVICE Best block_best(Best x, Best* each) {
  return block_join(
      x, Best{0.0f, -1}, each, [](Best a, Best b) { return better(a, b); }, [](Best a) { return warp_best(a); });
}
// In float64, by a tree. `each`: blockDim.x elements, a power of two.
SFX_DEVICE double block_sum(double x, double* each) {
  each[threadIdx.x] = x;
  __syncthreads();
  for (int half = (int)blockDim.x / 2; half > 0; half /= 2) {
    if ((int)threadIdx.x < half) each[threadIdx.x] += each[threadIdx.x + half];
    __syncthreads();
  }
  const double all = each[0];
  __syncthreads();
  return all;
}

}  // namespace sfx
#endif
