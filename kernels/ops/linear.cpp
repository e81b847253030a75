// y = x w^T + b (+ y);   dx = dy w (+ dx);   dw += dy^T x, db += column sums.
// Every output is one fma chain: forward over the input width, dx over the output width, dw over tokens in ascending
// order from the old gradient, so that a batch cut in two gives the same gradient.
#include "gemm.h"
#include "operation.h"
#include "operators.h"

namespace SFX_NS {

int32_t linear_forward(sfx_stream* s, const sfx_tensor* x, const sfx_tensor* w, const sfx_tensor* bias,
                       int32_t accumulate, sfx_tensor* y) {
  SFX_CHECK_F32(x, bias, y);
  SFX_CHECK_WEIGHT(w);
  SFX_CHECK(x->shape[1] == w->shape[1] && y->shape[1] == w->shape[0] && x->shape[0] == y->shape[0],
            "linear: x [n,M], w [N,M], y [n,N] disagree");
  SFX_CHECK(unit_last(x) && unit_last(y), "linear: rows of x and y must be contiguous");
  const Operation op(s);
  Product g = {x->shape[0],     w->shape[0],
               w->shape[1],     data(x),
               x->stride[0],    1,
               nullptr,         w->stride[1],
               w->stride[0],    data(y),
               y->stride[0],    false,
               accumulate != 0, bias ? data(bias) : nullptr};
  set_weight(&g, w, 0);
  multiply(s, &g, 1);
  return SFX_OK;
}

int32_t linear_backward_input(sfx_stream* s, const sfx_tensor* dy, const sfx_tensor* w, int32_t accumulate,
                              sfx_tensor* dx) {
  SFX_CHECK_F32(dy, dx);
  SFX_CHECK_WEIGHT(w);
  SFX_CHECK(dy->shape[1] == w->shape[0] && dx->shape[1] == w->shape[1] && dx->shape[0] == dy->shape[0],
            "linear: dy [n,N], w [N,M], dx [n,M] disagree");
  SFX_CHECK(unit_last(dy) && unit_last(dx), "linear: rows of dy and dx must be contiguous");
  const Operation op(s);
  Product g = {dy->shape[0], w->shape[1], w->shape[0],   data(dy), dy->stride[0],   1,      nullptr, w->stride[0],
               w->stride[1], data(dx),    dx->stride[0], false,    accumulate != 0, nullptr};
  set_weight(&g, w, 0);
  multiply(s, &g, 1);
  return SFX_OK;
}

int32_t linear_backward_weight(sfx_stream* s, const sfx_tensor* dy, const sfx_tensor* x, sfx_tensor* dw,
                               sfx_tensor* dbias) {
  SFX_CHECK_F32(dy, x, dw, dbias);
  SFX_CHECK(dw->shape[0] == dy->shape[1] && dw->shape[1] == x->shape[1] && dy->shape[0] == x->shape[0],
            "linear: dy [n,N], x [n,M], dw [N,M] disagree");
  SFX_CHECK(unit_last(dy) && unit_last(x) && (dw->stride[1] == 1 || dw->stride[0] == 1),
            "linear: rows of dy and x, and rows or columns of dw, must be contiguous");
  const Operation op(s);
  const int64_t n = dy->shape[0], out = dy->shape[1], in = x->shape[1];
  // dw is [out,in] or, stored [in,out], its transpose: the same chains either way.
  const Product rows = {out,          in, n,        data(dy),      1,    dy->stride[0], data(x),
                        x->stride[0], 1,  data(dw), dw->stride[0], true, false,         nullptr};
  const Product columns = {in,       out,           n,    data(x), 1,      x->stride[0], data(dy), dy->stride[0], 1,
                           data(dw), dw->stride[1], true, false,   nullptr};
  multiply(s, dw->stride[1] == 1 ? &rows : &columns, 1);
  if (dbias) add_column_sums(s, data(dy), dy->stride[0], n, out, data(dbias));
  return SFX_OK;
}

// sum[j] += x[0,j] + x[1,j] + ... one chain a column, ascending rows
void add_column_sums(sfx_stream* s, const float* x, int64_t row, int64_t rows, int64_t columns, float* sum) {
  parallel_ranges(s, columns, 16, (double)rows * columns / 16, [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; j += 16) {
      v16 acc = load_part(sum + j, end - j);
      for (int64_t i = 0; i < rows; i++) acc = add(acc, load_part(x + i * row + j, end - j));
      store_part(sum + j, acc, end - j);
    }
  });
}

}  // namespace SFX_NS
