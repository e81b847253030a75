// cuBLASLt, opened at run time: nothing of it is needed to build or to start. SINKFLEX_CUBLASLT names the library, or
// is `off`; where it is unset, the CUDA build looks for libcublasLt where the loader does and the emulated one does
// not.
#ifndef SINKFLEX_CUDA_CUBLASLT_H
#define SINKFLEX_CUDA_CUBLASLT_H

#include "products.cuh"

namespace sfx::cuda {

// SFX_OK: done, in float32 sums without TF32 and without a split of k, so that the same product gives the same bits on
// the same GPU. SFX_UNSUPPORTED: not a product for it, or it is not there; nothing was enqueued.
int32_t multiply_by_cublaslt(sfx_stream*, const Product&);

// What such a product takes of the arena at most.
int64_t cublaslt_workspace_bytes();

// What computes products, in a few words: its version, or why it is not used.
const char* products_by();

}  // namespace sfx::cuda
#endif
