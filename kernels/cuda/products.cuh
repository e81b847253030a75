// Matrix products behind one interface. In float32 every output is one fma chain over k, ascending from 0 (or from C),
// whatever the tile, the edge and the other rows of the batch: the bits are those of the CPU backend. Two bf16 operands
// go through the tensor cores with float32 sums instead. Where cuBLASLt is there (cublaslt.h), it takes what is not
// grouped and has both operands of one type: then sums go in its order.
#ifndef SINKFLEX_CUDA_PRODUCTS_CUH
#define SINKFLEX_CUDA_PRODUCTS_CUH

#include "device.h"

namespace sfx::cuda {

// Element (i, j) stands at i * row + j * column. float32, bf16, or as right operand MXFP4.
struct Matrix {
  const void* data;
  int64_t row, column;
  int32_t dtype;
  const uint8_t* scales;  // MXFP4: of the blocks of 32 elements, from element 0 of `data` on
};
inline Matrix matrix(const float* data, int64_t row, int64_t column) { return {data, row, column, SFX_F32, nullptr}; }
// Rows of a tensor, transposed or not; `offset` elements from its start.
inline Matrix matrix_of(const sfx_tensor* t, int first = 0, bool transposed = false) {
  int64_t count = 1;
  for (int32_t d = 0; d < t->rank; d++) count *= t->shape[d];
  const uint8_t* const scales = t->dtype == SFX_MXFP4 ? static_cast<const uint8_t*>(t->data) + count / 2 : nullptr;
  return {t->data, t->stride[first + (transposed ? 1 : 0)], t->stride[first + (transposed ? 0 : 1)], t->dtype, scales};
}

// C[m,n] = A[m,k] B[k,n] + bias, C in float32.
struct Product {
  int64_t m, n, k;
  Matrix a, b;
  float* c;
  int64_t c_row, c_column;
  bool chain;         // the chain starts from C instead of 0
  bool add;           // C is added last (not with chain)
  const float* bias;  // [n] or NULL
};
int32_t multiply(sfx_stream*, const Product&);

// One product a group of consecutive rows, group g those in [first[g], first[g + 1]), with a matrix B, bias or C of its
// own, so many elements further for each group.
struct Groups {
  const int32_t* first;  // [count + 1], device memory
  int64_t count;
  int64_t b_step, bias_step, c_step;
};
// Groups along m: rows of A and C; B and bias step. `m` counts the rows of all groups.
int32_t multiply_rows(sfx_stream*, const Product&, const Groups&);
// Groups along k: columns of A and rows of B; C steps.
int32_t multiply_inner(sfx_stream*, const Product&, const Groups&);

}  // namespace sfx::cuda
#endif
