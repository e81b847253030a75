// Rows by index, for embeddings, experts and the head.
#ifndef SINKFLEX_CUDA_ROWS_CUH
#define SINKFLEX_CUDA_ROWS_CUH

#include "device.h"
#include "intrinsics.cuh"

namespace sfx::cuda {

// to[r] = from[index[r] / divisor] for r < rows; `stride`: elements from one row of `from` to the next, `to` is dense.
int32_t gather_rows(sfx_stream*, const float* from, int64_t stride, const int32_t* index, int32_t divisor, int64_t rows,
                    int64_t width, float* to);
int32_t gather_rows(sfx_stream*, const Bf16* from, int64_t stride, const int32_t* index, int32_t divisor, int64_t rows,
                    int64_t width, float* to);
// to[index[r]] = from[r]; `from` is dense, no index comes twice.
int32_t scatter_rows(sfx_stream*, const float* from, const int32_t* index, int64_t rows, int64_t width, float* to,
                     int64_t stride);

}  // namespace sfx::cuda
#endif
