// Heads of a tensor [n, heads, D] in the storage that kernels want: from any strides and dtype into dense rows of
// `padded` columns (zeros beyond D), and back.
#ifndef SINKFLEX_CUDA_CONVERT_CUH
#define SINKFLEX_CUDA_CONVERT_CUH

#include "device.h"

namespace sfx::cuda {

// to[n][heads][padded], of `dtype`
int32_t gather_heads(sfx_stream*, const sfx_tensor& from, void* to, int32_t dtype, int64_t padded);
// from[n][heads][padded], of `dtype`
int32_t scatter_heads(sfx_stream*, const void* from, int32_t dtype, int64_t padded, const sfx_tensor& to);

}  // namespace sfx::cuda
#endif
