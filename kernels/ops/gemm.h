// Matrix products under the numeric contract: every output is one fma chain over k, ascending from 0 (or from C),
// whatever the blocking, packing, edge or thread. Epilogue: then bias, then the old C when `add`.
#ifndef SINKFLEX_OPS_GEMM_H
#define SINKFLEX_OPS_GEMM_H

#include "mxfp4.h"
#include "team.h"

namespace SFX_NS {

// C[m,n]: C[i,j] = chain over p of A[i,p] B[p,j]; A[i,p] = a[i*ai + p*ak], B[p,j] = b[p*bk + j*bj], rows of C are ci
// apart.
struct Product {
  int64_t m, n, k;
  const float* a;
  int64_t ai, ak;
  const float* b;
  int64_t bk, bj;
  float* c;
  int64_t ci;
  bool chain;         // start the chain from C instead of 0
  bool add;           // C = chain + bias + old C (not with chain)
  const float* bias;  // [n] or NULL
  // B in bf16 or MXFP4 instead, at the same strides; it is widened on the way and the chains are float32 as ever.
  const uint16_t* b16 = nullptr;
  Mxfp4 b4 = {nullptr, nullptr, 0};
};

// Points B at a tensor of float32, bf16 or MXFP4, `offset` elements from its start.
SFX_INLINE void set_weight(Product* g, const sfx_tensor* w, int64_t offset) {
  g->b = nullptr;
  if (w->dtype == SFX_MXFP4)
    g->b4 = mxfp4_of(w, offset);
  else if (w->dtype == SFX_BF16)
    g->b16 = static_cast<const uint16_t*>(w->data) + offset;
  else
    g->b = static_cast<const float*>(w->data) + offset;
}
SFX_INLINE void move_weight(Product* g, int64_t by) {
  if (g->b)
    g->b += by;
  else if (g->b16)
    g->b16 += by;
  else
    g->b4.at += by;
}
// B has to be widened; then sixteen values from element i on, zero from `left` on (MXFP4 has whole blocks only).
SFX_INLINE bool widened(const Product& g) { return !g.b; }
SFX_INLINE v16 load_widened(const Product& g, int64_t i, int64_t left) {
  return g.b16 ? load_bf16_part(g.b16 + i, left) : load_mxfp4(g.b4, i);
}

// Runs `count` products over the team.
void multiply(sfx_stream*, const Product*, int64_t count);

// One product on the calling thread, inside a task: `scratch` holds kProductScratch floats. Not for `add`.
constexpr int64_t kProductScratch = 232 * 1024;
void multiply_here(const Product&, float* scratch);

// On the calling thread, B (unit column stride) read where it lies, no scratch: for tiles that are in cache.
void multiply_small(int64_t m, int64_t n, int64_t k, const float* a, int64_t ai, int64_t ak, const float* b, int64_t bk,
                    float* c, int64_t ci, bool chain);

}  // namespace SFX_NS
#endif
