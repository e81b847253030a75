#include "paged_pass.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace sinkflex {

#define CALL(op, ...) check(b, b->op(stream_, __VA_ARGS__), #op)

PagedPass::PagedPass(const sfx_backend* backend, sfx_stream* stream, const Config& c, int64_t max_rows,
                     int64_t max_sequences, int64_t max_tokens, int64_t pages, bool record_experts)
    : backend_(backend),
      stream_(stream),
      config_(c),
      max_rows_(max_rows),
      max_pages_((max_tokens + kPageTokens - 1) / kPageTokens),
      pages_(pages),
      adapters_{nullptr, nullptr, c.lora_scale},
      linear_(backend, stream, adapters_),
      tables_(backend, stream, c, max_pages_ * kPageTokens),
      ids_(static_cast<size_t>(max_rows)),
      sequence_(static_cast<size_t>(max_rows)),
      position_(static_cast<size_t>(max_rows)),
      page_table_(static_cast<size_t>(max_pages_ * max_sequences)),
      draw_row_(static_cast<size_t>(max_rows)),
      token_(static_cast<size_t>(max_rows)),
      logprob_(static_cast<size_t>(max_rows)),
      options_(static_cast<size_t>(max_rows)) {
  const int64_t n = max_rows;
  arena_.plan(backend, [&](Arena& a) {
    device_sequence_ = a.take<int32_t>(n);
    device_position_ = a.take<int32_t>(n);
    device_page_table_ = a.take<int32_t>(max_pages_ * max_sequences);
    x_ = a.take<float>(n * c.hidden);
    normed_ = a.take<float>(n * c.hidden);
    rstd_ = a.take<float>(n);
    q_ = a.take<float>(n * c.query_width());
    k_ = a.take<float>(n * c.kv_width());
    v_ = a.take<float>(n * c.kv_width());
    attention_ = a.take<float>(n * c.query_width());
    adapters_.low = a.take<float>(n * c.lora_rank);
    q_raw_ = c.qk_norm ? a.take<float>(n * c.query_width()) : q_;
    k_raw_ = c.qk_norm ? a.take<float>(n * c.kv_width()) : k_;
    gate_ = a.take<float>(c.dense() ? n * c.intermediate : 0);
    up_ = a.take<float>(c.dense() ? n * c.intermediate : 0);
    act_ = a.take<float>(c.dense() ? n * c.intermediate : 0);
    router_logits_ = a.take<float>(n * c.experts);
    expert_index_ = a.take<int32_t>(n * c.top_k);
    expert_weight_ = a.take<float>(n * c.top_k);
  });
  cache_ = Block(backend, 2 * c.layers * pages_ * kPageTokens * c.kv_width() * static_cast<int64_t>(sizeof(float)));
  if (record_experts && c.experts > 0) {
    experts_.resize(static_cast<size_t>(pages_ * kPageTokens * c.layers * c.top_k), kUnknownExpert);
    chosen_.resize(static_cast<size_t>(n * c.top_k));
  }
}

void PagedPass::copy_page(int32_t from, int32_t to) {
  const sfx_backend* b = backend_;
  const int64_t floats = kPageTokens * config_.kv_width(), bytes = floats * static_cast<int64_t>(sizeof(float));
  for (int64_t part = 0; part < 2 * config_.layers; ++part) {  // keys and values of each layer
    float* const base = cache_.floats() + part * pages_ * floats;
    CALL(copy, base + to * floats, base + from * floats, bytes);
  }
  if (experts_.empty()) return;
  const int64_t each = kPageTokens * config_.layers * config_.top_k;
  std::copy_n(experts_.begin() + from * each, each, experts_.begin() + to * each);
}

void PagedPass::record(int64_t layer) {
  const sfx_backend* b = backend_;
  const int64_t k = config_.top_k;
  CALL(copy, chosen_.data(), expert_index_, rows_ * k * static_cast<int64_t>(sizeof(int32_t)));
  for (int64_t r = 0; r < rows_; ++r) {
    const int64_t at = position_[static_cast<size_t>(r)],
                  page = page_table_[table_index(sequence_[static_cast<size_t>(r)], at / kPageTokens)];
    const int64_t to = ((page * kPageTokens + at % kPageTokens) * config_.layers + layer) * k;
    for (int64_t j = 0; j < k; ++j)
      experts_[static_cast<size_t>(to + j)] = static_cast<uint16_t>(chosen_[static_cast<size_t>(r * k + j)]);
  }
}

sfx_paged PagedPass::upload_pages() {
  const auto count = static_cast<int64_t>(page_table_.size());
  if (pages_changed_)
    upload(backend_, stream_, device_page_table_, page_table_.data(), count * static_cast<int64_t>(sizeof(int32_t)));
  pages_changed_ = false;
  sfx_paged p{};
  p.sequences = count / max_pages_;
  p.sequence = device_sequence_;
  p.position = device_position_;
  p.page_table = device_page_table_;
  p.max_pages = max_pages_;
  p.page_tokens = kPageTokens;
  p.kv_heads = config_.kv_heads;
  return p;
}

void PagedPass::upload_rows(int64_t count, sfx_paged* paged) {
  const int64_t bytes = count * static_cast<int64_t>(sizeof(int32_t));
  upload(backend_, stream_, device_sequence_, sequence_.data(), bytes);
  upload(backend_, stream_, device_position_, position_.data(), bytes);
  paged->rows = count;
  paged->longest = count > 0 ? *std::max_element(position_.begin(), position_.begin() + count) + 1 : 0;
}

// Only rows that a token is drawn from matter once the last layer's keys and values are written.
void PagedPass::keep_drawn_rows(sfx_paged* paged) {
  const sfx_backend* b = backend_;
  const int64_t h = config_.hidden, bytes = h * static_cast<int64_t>(sizeof(float));
  for (int64_t i = 0; i < draws_; ++i) {
    const int64_t row = draw_row_[static_cast<size_t>(i)];  // >= i
    if (row == i) continue;
    CALL(copy, x_ + i * h, x_ + row * h, bytes);
    CALL(copy, normed_ + i * h, normed_ + row * h, bytes);
    sequence_[static_cast<size_t>(i)] = sequence_[static_cast<size_t>(row)];
    position_[static_cast<size_t>(i)] = position_[static_cast<size_t>(row)];
  }
  upload_rows(draws_, paged);
}

void PagedPass::run(const Weights& weights) {
  const sfx_backend* b = backend_;
  const Config& c = config_;
  const int64_t h = c.hidden, layer_floats = pages_ * kPageTokens * c.kv_width();
  sfx_paged paged = upload_pages();
  upload_rows(rows_, &paged);
  sfx_tensor x = view(x_, {rows_, h}), normed = view(normed_, {rows_, h});

  CALL(embedding_forward, &weights.embed, ids_.data(), &x);
  for (int64_t l = 0; l < c.layers; ++l) {
    const LayerWeights& w = weights.layers[static_cast<size_t>(l)];
    paged.keys = cache_.floats() + 2 * l * layer_floats;
    paged.values = cache_.floats() + (2 * l + 1) * layer_floats;
    CALL(rms_norm_forward, &x, &w.input_norm, c.eps, &normed, rstd_);
    write_keys(w, normed, paged);
    if (l + 1 == c.layers && experts_.empty() && draws_ < rows_) {
      keep_drawn_rows(&paged);
      if (draws_ == 0) break;
      x = view(x_, {draws_, h}), normed = view(normed_, {draws_, h});
    }
    attend(l, w, normed, paged, &x);
    CALL(rms_norm_forward, &x, &w.post_norm, c.eps, &normed, rstd_);
    mlp(l, w, &normed, &x);
  }
  if (draws_ > 0) {
    if (x.shape[0] > draws_) keep_drawn_rows(&paged);
    sfx_tensor last = view(x_, {draws_, h}), hidden = view(normed_, {draws_, h});
    CALL(rms_norm_forward, &last, &weights.norm, c.eps, &hidden, rstd_);
    CALL(linear_sample, &hidden, &weights.head, options_.data(), token_.data(), logprob_.data());
  }
  check(b, b->synchronize(stream_), "synchronize");
}

void PagedPass::write_keys(const LayerWeights& w, const sfx_tensor& normed, const sfx_paged& paged) {
  const sfx_backend* b = backend_;
  const Config& c = config_;
  const int64_t n = normed.shape[0];
  sfx_tensor k = view(k_raw_, {n, c.kv_width()}), v = view(v_, {n, c.kv_width()});
  sfx_tensor kh = view(k_, {n, c.kv_heads, c.head_dim}), vh = view(v_, {n, c.kv_heads, c.head_dim});
  linear_.forward(&normed, w.k, w.k_bias, w.k_lora, 0, &k);
  linear_.forward(&normed, w.v, w.v_bias, w.v_lora, 0, &v);
  if (c.qk_norm) {
    sfx_tensor from = view(k_raw_, {n * c.kv_heads, c.head_dim}), to = view(k_, {n * c.kv_heads, c.head_dim});
    CALL(rms_norm_forward, &from, &w.k_norm, c.eps, &to, nullptr);
  }
  CALL(rope, &kh, device_position_, &tables_.cosine, &tables_.sine, 0);
  CALL(kv_write, &kh, &vh, &paged);
}

void PagedPass::attend(int64_t layer, const LayerWeights& w, const sfx_tensor& normed, const sfx_paged& paged,
                       sfx_tensor* x) {
  const sfx_backend* b = backend_;
  const Config& c = config_;
  const int64_t n = normed.shape[0];
  sfx_tensor q = view(q_raw_, {n, c.query_width()}), qh = view(q_, {n, c.heads, c.head_dim});
  sfx_tensor o = view(attention_, {n, c.query_width()}), oh = view(attention_, {n, c.heads, c.head_dim});
  linear_.forward(&normed, w.q, w.q_bias, w.q_lora, 0, &q);
  if (c.qk_norm) {
    sfx_tensor from = view(q_raw_, {n * c.heads, c.head_dim}), to = view(q_, {n * c.heads, c.head_dim});
    CALL(rms_norm_forward, &from, &w.q_norm, c.eps, &to, nullptr);
  }
  CALL(rope, &qh, device_position_, &tables_.cosine, &tables_.sine, 0);
  const sfx_attention_mask m{c.window[static_cast<size_t>(layer)], c.prefix,
                             1.0f / std::sqrt(static_cast<float>(c.head_dim))};
  CALL(attention_paged, &qh, static_cast<const float*>(w.sinks.data), &paged, &m, &oh);
  linear_.forward(&o, w.o, w.o_bias, w.o_lora, 1, x);
}

void PagedPass::mlp(int64_t layer, const LayerWeights& w, const sfx_tensor* normed, sfx_tensor* x) {
  const sfx_backend* b = backend_;
  const Config& c = config_;
  const int64_t n = x->shape[0];
  if (c.dense()) {
    sfx_tensor gate = view(gate_, {n, c.intermediate}), up = view(up_, {n, c.intermediate}),
               act = view(act_, {n, c.intermediate});
    linear_.forward(normed, w.gate, w.gate_bias, w.gate_lora, 0, &gate);
    linear_.forward(normed, w.up, w.up_bias, w.up_lora, 0, &up);
    CALL(swiglu_forward, &gate, &up, &act);
    linear_.forward(&act, w.down, w.down_bias, w.down_lora, 1, x);
    return;
  }
  const int32_t top_k = static_cast<int32_t>(c.top_k);
  sfx_tensor logits = view(router_logits_, {n, c.experts});
  CALL(linear_forward, normed, &w.router, optional(w.router_bias), 0, &logits);
  CALL(router_forward, &logits, top_k, expert_index_, expert_weight_);
  if (!experts_.empty()) record(layer);
  const sfx_moe_adapters adapters = expert_adapters(c, w, nullptr);
  if (adapters.rank > 0)
    CALL(moe_adapted_forward, normed, expert_index_, expert_weight_, top_k, &w.gate_up, &w.gate_up_bias, &w.down,
         &w.down_bias, c.swiglu_limit, x, nullptr, &adapters);
  else
    CALL(moe_forward, normed, expert_index_, expert_weight_, top_k, &w.gate_up, &w.gate_up_bias, &w.down, &w.down_bias,
         c.swiglu_limit, x, nullptr);
}

#undef CALL

}  // namespace sinkflex
