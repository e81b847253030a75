// Products of few rows with [out,in] weights, which are read where they lie: what decoding does. Packing them would
// cost as much as the arithmetic.
#ifndef SINKFLEX_OPS_GEMM_NARROW_H
#define SINKFLEX_OPS_GEMM_NARROW_H

#include "gemm.h"

namespace SFX_NS {

constexpr int64_t kNarrowRows = 64;  // beyond it, packing B pays

// B's columns (an output's weights) and A's rows are contiguous.
SFX_INLINE bool is_narrow(const Product& g) {
  return g.m <= kNarrowRows && g.bk == 1 && g.bj != 1 && g.ak == 1 && !g.chain;
}

// A, turned so that the lanes of a vector are rows, is made once a product and shared by its pieces.
int64_t narrow_floats(const Product&);
void turn_rows(const Product&, float* to);

// One piece (any columns of the product, all its rows); `scratch` holds kProductScratch floats.
void multiply_narrow(const Product&, const float* turned, float* scratch);

}  // namespace SFX_NS
#endif
