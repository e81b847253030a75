// What the forward and the backward of the mixture of experts share.
#ifndef SINKFLEX_OPS_MOE_H
#define SINKFLEX_OPS_MOE_H

#include "elementary.h"
#include "gemm.h"
#include "operation.h"

namespace SFX_NS {

struct Routing {
  int64_t pairs;
  int64_t* first;  // [E + 1]: the pairs of expert e are first[e] .. first[e + 1] - 1
  int32_t* order;  // [pairs]: pair number t * k + choice
  int32_t* slot;   // [n * k]
  bool valid;
};
Routing sort_pairs(const Scratch&, const int32_t* index, int64_t n, int32_t top_k, int64_t experts);
// Pieces of the sorted pairs, one expert each, small enough that a piece's activations stay in the second-level cache.
// `worthwhile`: enough pieces to keep the team busy; otherwise the products are cut by columns instead.
struct Piece {
  int64_t expert, begin, end;
};
struct Pieces {
  Piece* piece;
  int64_t count;
  bool worthwhile;
};
Pieces cut_pieces(const Scratch&, sfx_stream*, const Routing&, int64_t experts, int64_t floats_a_pair);
void gather_rows(const sfx_tensor* x, const Routing&, int32_t top_k, int64_t begin, int64_t end, float* to);
void gather_rows(sfx_stream*, const sfx_tensor* x, const Routing&, int32_t top_k, float* to);
void swiglu(const float* gate_up, int64_t begin, int64_t end, int64_t I, float limit, float* act);

// c[rows, out] = a[rows, in] w[expert] + bias, where w is [E, in, out]; transposed: c[rows, in] = a[rows, out]
// w[expert]^T.
SFX_INLINE Product expert_product(int64_t rows, const float* a, const sfx_tensor* w, int64_t expert, bool transposed,
                                  float* c, const sfx_tensor* bias) {
  const int64_t k = w->shape[transposed ? 2 : 1], n = w->shape[transposed ? 1 : 2];
  Product g = {rows,
               n,
               k,
               a,
               k,
               1,
               nullptr,
               w->stride[transposed ? 2 : 1],
               w->stride[transposed ? 1 : 2],
               c,
               n,
               false,
               false,
               bias ? data(bias) + expert * bias->stride[0] : nullptr};
  set_weight(&g, w, expert * w->stride[0]);
  return g;
}

// The first `left` (at most 16) interleaved (gate, up) pairs.
SFX_INLINE void load_pairs(const float* p, int64_t left, v16* gate, v16* up) {
  const v16 a = load_part(p, 2 * left), b = left > 8 ? load_part(p + 16, 2 * left - 16) : zero();
  deinterleave(a, b, gate, up);
}
SFX_INLINE void store_pairs(float* p, int64_t left, v16 gate, v16 up) {
  v16 a, b;
  interleave(gate, up, &a, &b);
  store_part(p, a, 2 * left);
  if (left > 8) store_part(p + 16, b, 2 * left - 16);
}

}  // namespace SFX_NS
#endif
