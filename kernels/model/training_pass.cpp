#include "training_pass.h"

#include <cmath>
#include <cstring>

namespace sinkflex {

#define CALL(op, ...) check(b, b->op(stream_, __VA_ARGS__), #op)

TrainingPass::TrainingPass(const sfx_backend* backend, sfx_stream* stream, const Config& config, int32_t threads)
    : backend_(backend),
      stream_(stream),
      config_(config),
      threads_(threads),
      adapters_{nullptr, nullptr, config.lora_scale},
      linear_(backend, stream, adapters_),
      layers_(static_cast<size_t>(config.layers)) {}

sfx_attention_mask TrainingPass::mask(int64_t l) const {
  return {config_.window[static_cast<size_t>(l)], config_.prefix,
          1.0f / std::sqrt(static_cast<float>(config_.head_dim))};
}

void TrainingPass::ensure_tables(int64_t longest) {
  if (longest <= table_positions_) return;
  const int64_t positions = table_positions(longest);
  tables_ = RotaryTables();  // give the old memory back before asking for more
  tables_ = RotaryTables(backend_, stream_, config_, positions);
  table_positions_ = positions;
}

sfx_pass_shape TrainingPass::shape(int64_t n, int64_t segments, int64_t tiles, int64_t rows, Keep keep,
                                   int32_t threads) const {
  const Config& c = config_;
  return {n,
          segments,
          tiles,
          rows,
          c.hidden,
          c.intermediate,
          c.vocab,
          c.heads,
          c.kv_heads,
          c.head_dim,
          c.experts,
          static_cast<int32_t>(c.top_k),
          threads,
          keep != Keep::kNothing,
          c.experts > 0 ? static_cast<int32_t>(c.lora_rank) : 0};
}

PassMemory TrainingPass::measure(const sfx_backend* backend, const Config& config, const std::vector<int64_t>& lengths,
                                 int64_t rows, Keep keep, int32_t threads) {
  TrainingPass pass(backend, nullptr, config, threads);
  int64_t n = 0, tiles = 0, longest = 0;
  for (int64_t length : lengths) {
    n += length;
    tiles += (length + 63) / 64;
    longest = std::max(longest, length);
  }
  Arena arena;
  pass.layout(arena, n, keep);
  const sfx_pass_shape shape = pass.shape(n, static_cast<int64_t>(lengths.size()), tiles, rows, keep, threads);
  const int64_t logits = backend->logits_bytes(&shape);
  return {arena.used() + rotary_table_bytes(config, pass.table_positions(longest)),
          backend->workspace_bytes(&shape) - logits, logits};
}

void TrainingPass::plan(int64_t n, Keep keep) {
  if (n == planned_n_ && keep == planned_keep_) return;
  planned_n_ = 0;  // a plan that throws half way must not be taken for a good one
  arena_.plan(backend_, [&](Arena& a) { layout(a, n, keep); });
  planned_n_ = n;
  planned_keep_ = keep;
}

void TrainingPass::layout(Arena& a, int64_t n, Keep keep) {
  const Config& c = config_;
  const int64_t h = c.hidden, Q = c.query_width(), K = c.kv_width();
  const int64_t dense = c.dense() ? n * c.intermediate : 0;
  const bool back = keep != Keep::kNothing;
  const int64_t saved = back && !c.dense()
                            ? backend_->moe_saved_bytes(n, h, c.intermediate, c.experts, static_cast<int32_t>(c.top_k))
                            : 0;
  position_ = a.take<int32_t>(n);
  for (size_t l = 0; l < layers_.size(); ++l) {
    Layer& y = layers_[l];
    if (keep != Keep::kEverything && l > 0) {
      y = layers_[0];
      if (keep == Keep::kLayerInputs) y.x_in = a.take<float>(n * h);
      continue;
    }
    y.x_in = a.take<float>(n * h);
    y.x_mid = back ? a.take<float>(n * h) : y.x_in;
    y.rstd_in = a.take<float>(n);
    y.rstd_mid = a.take<float>(n);
    y.q = a.take<float>(n * Q);
    y.k = a.take<float>(n * K);
    y.v = a.take<float>(n * K);
    y.attention = a.take<float>(n * Q);
    y.lse = a.take<float>(n * c.heads);
    y.expert_index = a.take<int32_t>(n * c.top_k);
    y.expert_weight = a.take<float>(n * c.top_k);
    y.experts = back && !c.dense() ? a.take<uint8_t>(saved) : nullptr;
    y.gate = a.take<float>(dense);
    y.up = a.take<float>(dense);
    y.q_raw = c.qk_norm ? a.take<float>(n * Q) : y.q;
    y.k_raw = c.qk_norm ? a.take<float>(n * K) : y.k;
    y.rstd_q = a.take<float>(c.qk_norm ? n * c.heads : 0);
    y.rstd_k = a.take<float>(c.qk_norm ? n * c.kv_heads : 0);
  }
  x_final_ = back ? a.take<float>(n * h) : layers_[0].x_in;
  rstd_final_ = a.take<float>(n);
  normed_ = a.take<float>(n * h);
  router_logits_ = a.take<float>(n * c.experts);
  balance_ = a.take<double>(2 * c.experts);
  load_ = a.take<float>(c.experts);
  act_ = a.take<float>(dense);
  adapters_.low = a.take<float>(n * c.lora_rank);
  adapters_.dlow = a.take<float>(back ? n * c.lora_rank : 0);
  row_logprob_ = a.take<float>(n);
  row_entropy_ = a.take<float>(n);
  row_lse_ = a.take<float>(n);
  if (!back) return;
  dx_ = a.take<float>(n * h);
  dnormed_ = a.take<float>(n * h);
  dq_ = a.take<float>(n * Q);
  dk_ = a.take<float>(n * K);
  dv_ = a.take<float>(n * K);
  dattention_ = a.take<float>(n * Q);
  dact_ = a.take<float>(dense);
  dgate_ = a.take<float>(dense);
  dup_ = a.take<float>(dense);
  drouter_ = a.take<float>(n * c.experts);
  dexpert_weight_ = a.take<float>(n * c.top_k);
  row_dlogprob_ = a.take<float>(n);
  row_dentropy_ = a.take<float>(n);
}

void TrainingPass::forward(const PackedBatch& batch, const Weights& weights, float temperature, Keep keep,
                           float* logprobs, float* entropy, float* last_hidden) {
  const sfx_backend* b = backend_;
  const Config& c = config_;
  kept_ = false;
  n_ = static_cast<int64_t>(batch.ids.size());
  segments_ = static_cast<int64_t>(batch.cu_seqlens.size()) - 1;
  temperature_ = temperature;
  weights_ = &weights;
  experts_ = batch.experts;
  int64_t longest = 0, tiles = 0;
  for (size_t s = 0; s < static_cast<size_t>(segments_); ++s) {
    const int64_t length = batch.cu_seqlens[s + 1] - batch.cu_seqlens[s];
    longest = std::max(longest, length);
    tiles += (length + 63) / 64;
  }
  ensure_tables(longest);
  plan(n_, keep);

  int64_t rows = 0;
  ids_ = batch.ids;
  cu_ = batch.cu_seqlens;
  target_.assign(static_cast<size_t>(n_), -1);
  std::vector<int32_t> position(static_cast<size_t>(n_));
  for (size_t s = 0; s < static_cast<size_t>(segments_); ++s) {
    for (size_t t = static_cast<size_t>(cu_[s]); t < static_cast<size_t>(cu_[s + 1]); ++t) {
      position[t] = static_cast<int32_t>(t) - cu_[s];
      if (t + 1 == static_cast<size_t>(cu_[s + 1]) || (!batch.mask.empty() && !batch.mask[t + 1])) continue;
      target_[t] = ids_[t + 1];
      ++rows;
    }
  }
  upload(b, stream_, position_, position.data(), n_ * static_cast<int64_t>(sizeof(int32_t)));
  const sfx_pass_shape s = shape(n_, segments_, tiles, rows, keep, threads_);
  logits_bytes_ = std::max(logits_bytes_, b->logits_bytes(&s));
  check(b, b->workspace_reserve(stream_, b->workspace_bytes(&s)), "workspace_reserve");

  sfx_tensor x0 = view(layers_.empty() ? x_final_ : layers_[0].x_in, {n_, c.hidden});
  CALL(embedding_forward, &weights.embed, ids_.data(), &x0);
  balancing_ = !c.dense();
  if (balancing_) CALL(fill_zero, balance_, 2 * c.experts * static_cast<int64_t>(sizeof(double)));
  for (int64_t l = 0; l < c.layers; ++l)
    layer_forward(l, layers_[static_cast<size_t>(l)],
                  l + 1 < c.layers ? layers_[static_cast<size_t>(l) + 1].x_in : x_final_);
  balancing_ = false;

  sfx_tensor x = view(x_final_, {n_, c.hidden}), hidden = view(normed_, {n_, c.hidden});
  CALL(rms_norm_forward, &x, &weights.norm, c.eps, &hidden, rstd_final_);
  CALL(linear_logprob_forward, &hidden, &weights.head, target_.data(), temperature, row_logprob_, row_entropy_,
       row_lse_);
  check(b, b->synchronize(stream_), "synchronize");
  balance_router();

  // A row's number belongs to the token after it.
  const auto give = [&](const float* rows_of, float* to) {
    to[0] = 0;
    download(b, stream_, to + 1, rows_of, (n_ - 1) * static_cast<int64_t>(sizeof(float)));
    for (size_t t = 0; t + 1 < static_cast<size_t>(n_); ++t)
      if (target_[t] < 0) to[t + 1] = 0;
  };
  give(row_logprob_, logprobs);
  give(row_entropy_, entropy);
  for (size_t s = 0; last_hidden && s < static_cast<size_t>(segments_); ++s) {
    float* to = last_hidden + static_cast<int64_t>(s) * c.hidden;
    if (cu_[s + 1] > cu_[s])
      download(b, stream_, to, normed_ + (cu_[s + 1] - 1) * c.hidden, c.hidden * static_cast<int64_t>(sizeof(float)));
    else
      std::fill_n(to, c.hidden, 0.0f);
  }
  keep_ = keep;
  kept_ = keep != Keep::kNothing;
}

void TrainingPass::layer_forward(int64_t l, Layer& a, float* x_out) {
  const sfx_backend* b = backend_;
  const Config& c = config_;
  const LayerWeights& w = weights_->layers[static_cast<size_t>(l)];
  const int64_t n = n_, h = c.hidden, row_bytes = n * h * static_cast<int64_t>(sizeof(float));
  sfx_tensor x = view(a.x_in, {n, h}), mid = view(a.x_mid, {n, h}), out = view(x_out, {n, h}),
             normed = view(normed_, {n, h});
  sfx_tensor q = view(a.q_raw, {n, c.query_width()}), k = view(a.k_raw, {n, c.kv_width()}),
             v = view(a.v, {n, c.kv_width()});
  sfx_tensor qh = view(a.q, {n, c.heads, c.head_dim}), kh = view(a.k, {n, c.kv_heads, c.head_dim}),
             vh = view(a.v, {n, c.kv_heads, c.head_dim});
  sfx_tensor o = view(a.attention, {n, c.query_width()}), oh = view(a.attention, {n, c.heads, c.head_dim});

  CALL(rms_norm_forward, &x, &w.input_norm, c.eps, &normed, a.rstd_in);
  linear_.forward(&normed, w.q, w.q_bias, w.q_lora, 0, &q);
  linear_.forward(&normed, w.k, w.k_bias, w.k_lora, 0, &k);
  linear_.forward(&normed, w.v, w.v_bias, w.v_lora, 0, &v);
  if (c.qk_norm) {
    sfx_tensor q_rows = view(a.q, {n * c.heads, c.head_dim}), k_rows = view(a.k, {n * c.kv_heads, c.head_dim});
    sfx_tensor q_in = view(a.q_raw, {n * c.heads, c.head_dim}), k_in = view(a.k_raw, {n * c.kv_heads, c.head_dim});
    CALL(rms_norm_forward, &q_in, &w.q_norm, c.eps, &q_rows, a.rstd_q);
    CALL(rms_norm_forward, &k_in, &w.k_norm, c.eps, &k_rows, a.rstd_k);
  }
  CALL(rope, &qh, position_, &tables_.cosine, &tables_.sine, 0);
  CALL(rope, &kh, position_, &tables_.cosine, &tables_.sine, 0);
  const sfx_attention_mask m = mask(l);
  CALL(attention_forward, &qh, &kh, &vh, static_cast<const float*>(w.sinks.data), cu_.data(), segments_, &m, &oh,
       a.lse);
  if (a.x_mid != a.x_in) CALL(copy, a.x_mid, a.x_in, row_bytes);
  linear_.forward(&o, w.o, w.o_bias, w.o_lora, 1, &mid);

  CALL(rms_norm_forward, &mid, &w.post_norm, c.eps, &normed, a.rstd_mid);
  if (x_out && x_out != a.x_mid) CALL(copy, x_out, a.x_mid, row_bytes);
  mlp_forward(l, a, x_out ? &out : nullptr);
}

void TrainingPass::backward(const float* dlogprobs, const float* dentropy, double drouter_aux_loss, Gradients* g) {
  if (!kept_) throw Error("SINKFLEX_ENGINE_NOTHING_KEPT", "backward needs a forward with keep: true before it");
  kept_ = false;
  const sfx_backend* b = backend_;
  const Config& c = config_;
  balance_factor_ = static_cast<float>(drouter_aux_loss * static_cast<double>(c.experts) /
                                       (static_cast<double>(n_) * static_cast<double>(c.layers)));
  // Rows without a target are not read.
  const auto take = [&](const float* from, float* rows) {
    upload(b, stream_, rows, from + 1, (n_ - 1) * static_cast<int64_t>(sizeof(float)));
  };
  take(dlogprobs, row_dlogprob_);
  if (dentropy) take(dentropy, row_dentropy_);
  sfx_tensor x = view(x_final_, {n_, c.hidden}), hidden = view(normed_, {n_, c.hidden});
  sfx_tensor dhidden = view(dnormed_, {n_, c.hidden}), dx = view(dx_, {n_, c.hidden});
  const int64_t row_bytes = n_ * c.hidden * static_cast<int64_t>(sizeof(float));
  CALL(rms_norm_forward, &x, &weights_->norm, c.eps, &hidden, rstd_final_);
  CALL(linear_logprob_backward, &hidden, &weights_->head, target_.data(), temperature_, row_lse_, row_entropy_,
       row_dlogprob_, dentropy ? row_dentropy_ : nullptr, &dhidden, optional(g->head));
  CALL(fill_zero, dx_, row_bytes);
  CALL(rms_norm_backward, &dhidden, &x, &weights_->norm, rstd_final_, &dx, optional(g->views.norm));
  for (int64_t l = c.layers - 1; l >= 0; --l) {
    Layer& a = layers_[static_cast<size_t>(l)];
    // The last layer's activations are those that the forward left.
    if (keep_ == Keep::kLayerInputs && l + 1 < c.layers) layer_forward(l, a, nullptr);
    layer_backward(l, a, &g->views.layers[static_cast<size_t>(l)]);
  }
  if (g->views.embed.data) CALL(embedding_backward, &dx, ids_.data(), &g->views.embed);
  check(b, b->synchronize(stream_), "synchronize");
}

// dx_ enters as dL/d(layer output) and leaves as dL/d(layer input): both residual branches add into it in place.
void TrainingPass::layer_backward(int64_t l, Layer& a, LayerWeights* d) {
  const sfx_backend* b = backend_;
  const Config& c = config_;
  const LayerWeights& w = weights_->layers[static_cast<size_t>(l)];
  const int64_t n = n_, h = c.hidden;
  sfx_tensor x = view(a.x_in, {n, h}), mid = view(a.x_mid, {n, h}), normed = view(normed_, {n, h});
  sfx_tensor dx = view(dx_, {n, h}), dnormed = view(dnormed_, {n, h});

  CALL(rms_norm_forward, &mid, &w.post_norm, c.eps, &normed, a.rstd_mid);
  mlp_backward(w, a, d);
  CALL(rms_norm_backward, &dnormed, &mid, &w.post_norm, a.rstd_mid, &dx, optional(d->post_norm));

  // attention
  const int64_t Q = c.query_width(), K = c.kv_width();
  sfx_tensor o = view(a.attention, {n, Q}), dattention = view(dattention_, {n, Q});
  linear_.backward_input(&dx, w.o, w.o_lora, 0, &dattention);
  linear_.backward_weight(&dx, &o, w.o_lora, d->o, d->o_bias, d->o_lora);
  sfx_tensor qh = view(a.q, {n, c.heads, c.head_dim}), kh = view(a.k, {n, c.kv_heads, c.head_dim}),
             vh = view(a.v, {n, c.kv_heads, c.head_dim});
  sfx_tensor oh = view(a.attention, {n, c.heads, c.head_dim}), doh = view(dattention_, {n, c.heads, c.head_dim});
  sfx_tensor dqh = view(dq_, {n, c.heads, c.head_dim}), dkh = view(dk_, {n, c.kv_heads, c.head_dim}),
             dvh = view(dv_, {n, c.kv_heads, c.head_dim});
  const sfx_attention_mask m = mask(l);
  CALL(attention_backward, &doh, &qh, &kh, &vh, static_cast<const float*>(w.sinks.data), &oh, a.lse, cu_.data(),
       segments_, &m, &dqh, &dkh, &dvh, static_cast<float*>(d->sinks.data));
  CALL(rope, &dqh, position_, &tables_.cosine, &tables_.sine, 1);
  CALL(rope, &dkh, position_, &tables_.cosine, &tables_.sine, 1);
  float *dq_out = dq_, *dk_out = dk_;
  if (c.qk_norm) {
    // q and k after the norm are not needed any more: their buffers take the gradients before it.
    dq_out = a.q;
    dk_out = a.k;
    CALL(fill_zero, dq_out, n * Q * static_cast<int64_t>(sizeof(float)));
    CALL(fill_zero, dk_out, n * K * static_cast<int64_t>(sizeof(float)));
    sfx_tensor dq_rows = view(dq_, {n * c.heads, c.head_dim}), dk_rows = view(dk_, {n * c.kv_heads, c.head_dim});
    sfx_tensor q_in = view(a.q_raw, {n * c.heads, c.head_dim}), k_in = view(a.k_raw, {n * c.kv_heads, c.head_dim});
    sfx_tensor dq_in = view(dq_out, {n * c.heads, c.head_dim}), dk_in = view(dk_out, {n * c.kv_heads, c.head_dim});
    CALL(rms_norm_backward, &dq_rows, &q_in, &w.q_norm, a.rstd_q, &dq_in, optional(d->q_norm));
    CALL(rms_norm_backward, &dk_rows, &k_in, &w.k_norm, a.rstd_k, &dk_in, optional(d->k_norm));
  }
  sfx_tensor dq = view(dq_out, {n, Q}), dk = view(dk_out, {n, K}), dv = view(dv_, {n, K});
  CALL(rms_norm_forward, &x, &w.input_norm, c.eps, &normed, a.rstd_in);
  linear_.backward_input(&dq, w.q, w.q_lora, 0, &dnormed);
  linear_.backward_input(&dk, w.k, w.k_lora, 1, &dnormed);
  linear_.backward_input(&dv, w.v, w.v_lora, 1, &dnormed);
  linear_.backward_weight(&dq, &normed, w.q_lora, d->q, d->q_bias, d->q_lora);
  linear_.backward_weight(&dk, &normed, w.k_lora, d->k, d->k_bias, d->k_lora);
  linear_.backward_weight(&dv, &normed, w.v_lora, d->v, d->v_bias, d->v_lora);
  CALL(rms_norm_backward, &dnormed, &x, &w.input_norm, a.rstd_in, &dx, optional(d->input_norm));
}

#undef CALL

}  // namespace sinkflex
