// Operands of mma.m16n8k16 out of tiles in shared memory: rows of kDepth elements and 8 (16 bytes) of padding, so that
// the eight rows of an ldmatrix lie in different banks.
#ifndef SINKFLEX_CUDA_FRAGMENTS_CUH
#define SINKFLEX_CUDA_FRAGMENTS_CUH

#include "intrinsics.cuh"

namespace sfx::cuda {

// The 16 x 16 piece of A at `rows` and column `k` (a[4] of mma.m16n8k16).
template <int kDepth, class T>
SFX_DEVICE void load_a(uint32_t (&a)[4], const T* rows, int k) {
  const int lane = threadIdx.x % kWarpSize;
  load_matrices(a, rows + (lane % 16) * (kDepth + 8) + k + lane / 16 * 8);
}
// B of two products: 16 rows of a tile are the columns n, its columns k .. k + 15 the inner dimension.
template <int kDepth, class T>
SFX_DEVICE void load_b_rows(uint32_t (&b)[4], const T* rows, int k) {
  const int lane = threadIdx.x % kWarpSize;
  load_matrices(b, rows + (lane / 16 * 8 + lane % 8) * (kDepth + 8) + k + lane / 8 % 2 * 8);
}
// B of two products: 16 rows of a tile are the inner dimension, its columns n .. n + 15 the columns.
template <int kDepth, class T>
SFX_DEVICE void load_b_columns(uint32_t (&b)[4], const T* rows, int n) {
  const int lane = threadIdx.x % kWarpSize;
  load_matrices_transposed(b, rows + (lane % 16) * (kDepth + 8) + n + lane / 16 * 8);
}

}  // namespace sfx::cuda
#endif
