// What the forward and the backward of the mixture of experts share. (token, choice) pairs are sorted by expert, tokens
// ascending inside, so that the experts are grouped products.
#ifndef SINKFLEX_CUDA_MOE_CUH
#define SINKFLEX_CUDA_MOE_CUH

#include "operators.h"
#include "products.cuh"

namespace sfx::cuda {

// Device memory. A pair is token * top_k + choice; one whose expert does not exist is left out.
struct SortedPairs {
  int64_t pairs;
  int32_t* first;  // [E + 1]: the pairs of expert e are order[first[e]] .. order[first[e + 1] - 1]
  int32_t* order;  // [pairs]
  int32_t* slot;   // [n, top_k]: the places of a token's pairs in that order, ascending; -1: left out
};
int32_t sort_pairs(Scratch&, const int32_t* index, int64_t n, int32_t top_k, int64_t experts, SortedPairs*);

// to[t] += sum over the token's pairs, in order, of weight * rows[place]; weight NULL: 1.
int32_t combine_pairs(sfx_stream*, const SortedPairs&, const float* rows, const float* weight, int64_t n, int32_t top_k,
                      sfx_tensor* to);

// The products of the experts: w is [E, in, out]. rows[pairs, out] = from[pairs, in] w[e] + bias; transposed:
// rows[pairs, in] = from[pairs, out] w[e]^T.
int32_t multiply_experts(sfx_stream*, const SortedPairs&, const float* from, const sfx_tensor* w, bool transposed,
                         const sfx_tensor* bias, float* rows);
// dw[e] += left[pairs of e, in]^T right[pairs of e, out]
int32_t multiply_gradients(sfx_stream*, const SortedPairs&, const float* left, const float* right, sfx_tensor* dw);

// The adapter of one of the two products (sfx_moe_adapters); `a` NULL: none.
struct ExpertAdapter {
  const float *a, *b;
  float *da, *db;
  int64_t experts, rank, in, out;
  float scale;
  float *low, *dlow;  // [pairs, rank]

  int32_t add_forward(sfx_stream*, const SortedPairs&, const float* x, float* y) const;
  int32_t add_backward(sfx_stream*, const SortedPairs&, const float* dy, float* dx) const;  // dx may be NULL
  int32_t add_gradients(sfx_stream*, const SortedPairs&, const float* x, const float* dy) const;

 private:
  int32_t compress(sfx_stream*, const SortedPairs&, const float* x) const;
};
struct ExpertAdapters {
  ExpertAdapter up, down;
};
ExpertAdapters expert_adapters(Scratch&, const sfx_moe_adapters*, int64_t pairs, int64_t experts, int64_t h, int64_t I);

// What both directions check; I, the width of an expert.
int32_t check_experts(const sfx_tensor* x, const sfx_tensor* gate_up, const sfx_tensor* gate_up_bias,
                      const sfx_tensor* down, const sfx_tensor* down_bias, int32_t top_k);

}  // namespace sfx::cuda
#endif
