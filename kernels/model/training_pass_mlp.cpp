// The part of a layer after attention, for the training pass: a dense SwiGLU, or a router and its experts.
#include "training_pass.h"

namespace sinkflex {

#define CALL(op, ...) check(b, b->op(stream_, __VA_ARGS__), #op)

void TrainingPass::mlp_forward(int64_t l, Layer& a, sfx_tensor* out) {
  const sfx_backend* b = backend_;
  const Config& c = config_;
  const LayerWeights& w = weights_->layers[static_cast<size_t>(l)];
  sfx_tensor normed = view(normed_, {n_, c.hidden});
  if (c.dense()) {
    sfx_tensor gate = view(a.gate, {n_, c.intermediate}), up = view(a.up, {n_, c.intermediate}),
               act = view(act_, {n_, c.intermediate});
    linear_.forward(&normed, w.gate, w.gate_bias, w.gate_lora, 0, &gate);
    linear_.forward(&normed, w.up, w.up_bias, w.up_lora, 0, &up);
    if (!out) return;
    CALL(swiglu_forward, &gate, &up, &act);
    linear_.forward(&act, w.down, w.down_bias, w.down_lora, 1, out);
    return;
  }
  sfx_tensor logits = view(router_logits_, {n_, c.experts});
  CALL(linear_forward, &normed, &w.router, optional(w.router_bias), 0, &logits);
  const int32_t top_k = static_cast<int32_t>(c.top_k);
  if (experts_.empty()) {
    CALL(router_forward, &logits, top_k, a.expert_index, a.expert_weight);
  } else {
    const int64_t chosen = n_ * top_k;
    CALL(copy, a.expert_index, experts_.data() + l * chosen, chosen * static_cast<int64_t>(sizeof(int32_t)));
    CALL(router_replay, &logits, top_k, a.expert_index, a.expert_weight);
  }
  if (balancing_) CALL(router_balance, &logits, a.expert_index, top_k, balance_);
  const sfx_moe_adapters adapters = expert_adapters(c, w, nullptr);
  if (adapters.rank > 0)
    CALL(moe_adapted_forward, &normed, a.expert_index, a.expert_weight, top_k, &w.gate_up, &w.gate_up_bias, &w.down,
         &w.down_bias, c.swiglu_limit, out, a.experts, &adapters);
  else
    CALL(moe_forward, &normed, a.expert_index, a.expert_weight, top_k, &w.gate_up, &w.gate_up_bias, &w.down,
         &w.down_bias, c.swiglu_limit, out, a.experts);
}

void TrainingPass::mlp_backward(const LayerWeights& w, Layer& a, LayerWeights* d) {
  const sfx_backend* b = backend_;
  const Config& c = config_;
  const int64_t n = n_, I = c.intermediate;
  sfx_tensor normed = view(normed_, {n, c.hidden}), dx = view(dx_, {n, c.hidden}),
             dnormed = view(dnormed_, {n, c.hidden});
  if (c.dense()) {
    sfx_tensor gate = view(a.gate, {n, I}), up = view(a.up, {n, I}), act = view(act_, {n, I});
    sfx_tensor dact = view(dact_, {n, I}), dgate = view(dgate_, {n, I}), dup = view(dup_, {n, I});
    CALL(swiglu_forward, &gate, &up, &act);
    linear_.backward_input(&dx, w.down, w.down_lora, 0, &dact);
    linear_.backward_weight(&dx, &act, w.down_lora, d->down, d->down_bias, d->down_lora);
    CALL(swiglu_backward, &dact, &gate, &up, &dgate, &dup);
    linear_.backward_input(&dgate, w.gate, w.gate_lora, 0, &dnormed);
    linear_.backward_input(&dup, w.up, w.up_lora, 1, &dnormed);
    linear_.backward_weight(&dgate, &normed, w.gate_lora, d->gate, d->gate_bias, d->gate_lora);
    linear_.backward_weight(&dup, &normed, w.up_lora, d->up, d->up_bias, d->up_lora);
    return;
  }
  const int32_t top_k = static_cast<int32_t>(c.top_k);
  CALL(fill_zero, dnormed_, n * c.hidden * static_cast<int64_t>(sizeof(float)));
  const sfx_moe_adapters adapters = expert_adapters(c, w, d);
  if (adapters.rank > 0)
    CALL(moe_adapted_backward, &dx, &normed, a.expert_index, a.expert_weight, top_k, &w.gate_up, &w.gate_up_bias,
         &w.down, &w.down_bias, c.swiglu_limit, a.experts, &dnormed, dexpert_weight_, optional(d->gate_up),
         optional(d->gate_up_bias), optional(d->down), optional(d->down_bias), &adapters);
  else
    CALL(moe_backward, &dx, &normed, a.expert_index, a.expert_weight, top_k, &w.gate_up, &w.gate_up_bias, &w.down,
         &w.down_bias, c.swiglu_limit, a.experts, &dnormed, dexpert_weight_, optional(d->gate_up),
         optional(d->gate_up_bias), optional(d->down), optional(d->down_bias));
  sfx_tensor drouter = view(drouter_, {n, c.experts});
  CALL(router_backward, dexpert_weight_, a.expert_index, a.expert_weight, top_k, &drouter);
  if (balance_factor_ != 0) {
    sfx_tensor logits = view(router_logits_, {n, c.experts});
    CALL(linear_forward, &normed, &w.router, optional(w.router_bias), 0, &logits);
    CALL(router_balance_backward, &logits, load_, balance_factor_, &drouter);
  }
  CALL(linear_backward_input, &drouter, &w.router, 1, &dnormed);
  if (d->router.data) CALL(linear_backward_weight, &drouter, &normed, &d->router, optional(d->router_bias));
}

void TrainingPass::balance_router() {
  const int64_t E = config_.experts;
  router_aux_loss_ = 0;
  if (E == 0) return;
  std::vector<double> sums(static_cast<size_t>(2 * E));
  std::vector<float> load(static_cast<size_t>(E));
  download(backend_, stream_, sums.data(), balance_, 2 * E * static_cast<int64_t>(sizeof(double)));
  const double rows = static_cast<double>(n_) * static_cast<double>(config_.layers);
  for (size_t e = 0; e < load.size(); ++e) {
    load[e] = static_cast<float>(sums[e] / rows);
    router_aux_loss_ += sums[e] / rows * (sums[load.size() + e] / rows);
  }
  router_aux_loss_ *= static_cast<double>(E);
  upload(backend_, stream_, load_, load.data(), E * static_cast<int64_t>(sizeof(float)));
}

#undef CALL

}  // namespace sinkflex
