// Attention of float32 tensors (attention-float.cu), once a call is prepared. Tensors are float32, D contiguous.
#ifndef SINKFLEX_CUDA_ATTENTION_FLOAT_CUH
#define SINKFLEX_CUDA_ATTENTION_FLOAT_CUH

#include "attention.cuh"

namespace sfx::cuda {

int32_t float_forward(sfx_stream*, AttentionCall&, const Heads& q, const Heads& k, const Heads& v, const Heads& out,
                      float* lse);

struct FloatGradients {
  Heads q, k, v, dout, dq, dk, dv;
  const float *lse2, *delta;  // [heads][n], of the rows kernel
  const Tile *key_tiles, *query_tiles;
};
int32_t float_backward(sfx_stream*, AttentionCall&, const FloatGradients&);

}  // namespace sfx::cuda
#endif
