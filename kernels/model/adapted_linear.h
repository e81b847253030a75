// A linear layer with its LoRA adapter, for both passes, so that generation and training compute the same chains:
// y = x W^T + b (+ y), then y += (scale x A^T) B^T. Backward: db, dW as without an adapter (skipped where the base is
// frozen: no buffer for it), du = scale dy B, dx += du A, dA += du^T x, dB += dy^T (scale x A^T).
#ifndef SINKFLEX_MODEL_ADAPTED_LINEAR_H
#define SINKFLEX_MODEL_ADAPTED_LINEAR_H

#include "parameters.h"

namespace sinkflex {

// What a pass keeps for its adapters: `low` and `dlow` hold [rows, rank] floats.
struct AdapterScratch {
  float *low = nullptr, *dlow = nullptr;
  float scale = 1;
};

class AdaptedLinear {
 public:
  AdaptedLinear(const sfx_backend* backend, sfx_stream* stream, const AdapterScratch& scratch)
      : b_(backend), stream_(stream), s_(scratch) {}

  void forward(const sfx_tensor* x, const sfx_tensor& w, const sfx_tensor& bias, const Adapter& adapter,
               int32_t accumulate, sfx_tensor* y) const {
    check(b_, b_->linear_forward(stream_, x, &w, optional(bias), accumulate, y), "linear_forward");
    if (!adapter.a.data) return;
    const sfx_tensor low = compress(x, adapter);
    check(b_, b_->linear_forward(stream_, &low, &adapter.b, nullptr, 1, y), "linear_forward");
  }

  void backward_input(const sfx_tensor* dy, const sfx_tensor& w, const Adapter& adapter, int32_t accumulate,
                      sfx_tensor* dx) const {
    check(b_, b_->linear_backward_input(stream_, dy, &w, accumulate, dx), "linear_backward_input");
    if (!adapter.a.data) return;
    const sfx_tensor dlow = expand_back(dy, adapter);
    check(b_, b_->linear_backward_input(stream_, &dlow, &adapter.a, 1, dx), "linear_backward_input");
  }

  void backward_weight(const sfx_tensor* dy, const sfx_tensor* x, const Adapter& adapter, sfx_tensor& dw,
                       sfx_tensor& dbias, Adapter& d) const {
    if (dw.data) check(b_, b_->linear_backward_weight(stream_, dy, x, &dw, optional(dbias)), "linear_backward_weight");
    if (!adapter.a.data || !d.a.data) return;
    const sfx_tensor low = compress(x, adapter), dlow = expand_back(dy, adapter);
    check(b_, b_->linear_backward_weight(stream_, dy, &low, &d.b, nullptr), "linear_backward_weight");
    check(b_, b_->linear_backward_weight(stream_, &dlow, x, &d.a, nullptr), "linear_backward_weight");
  }

 private:
  sfx_tensor compress(const sfx_tensor* x, const Adapter& adapter) const {
    sfx_tensor low = view(s_.low, {x->shape[0], adapter.a.shape[0]});
    check(b_, b_->linear_forward(stream_, x, &adapter.a, nullptr, 0, &low), "linear_forward");
    check(b_, b_->scale(stream_, s_.low, low.shape[0] * low.shape[1], s_.scale), "scale");
    return low;
  }
  sfx_tensor expand_back(const sfx_tensor* dy, const Adapter& adapter) const {
    sfx_tensor dlow = view(s_.dlow, {dy->shape[0], adapter.a.shape[0]});
    check(b_, b_->linear_backward_input(stream_, dy, &adapter.b, 0, &dlow), "linear_backward_input");
    check(b_, b_->scale(stream_, s_.dlow, dlow.shape[0] * dlow.shape[1], s_.scale), "scale");
    return dlow;
  }

  const sfx_backend* b_;
  sfx_stream* stream_;
  const AdapterScratch& s_;
};

}  // namespace sinkflex
#endif
