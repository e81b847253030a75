// One step of generation: rows of many sequences (one for a sequence that decodes, a chunk for one that reads its
// prompt) through the model over a paged key/value cache, then one token drawn for each row that is at its end. Buffers
// are made once; a step allocates nothing.
#ifndef SINKFLEX_MODEL_PAGED_PASS_H
#define SINKFLEX_MODEL_PAGED_PASS_H

#include <cstdint>
#include <vector>

#include "adapted_linear.h"
#include "page_cache.h"
#include "parameters.h"
#include "rotary_tables.h"

namespace sinkflex {

class PagedPass {
 public:
  static constexpr int64_t kPageTokens = PageCache::kPageTokens;  // equals the key tile of the attention operators

  // `pages` pages of each layer are reserved here; which sequence has which is the caller's business.
  PagedPass(const sfx_backend* backend, sfx_stream* stream, const Config& config, int64_t max_rows,
            int64_t max_sequences, int64_t max_tokens, int64_t pages, bool record_experts);

  // Tokens [64 index, 64 (index + 1)) of a sequence lie in `page`.
  void set_page(int32_t sequence, int64_t index, int32_t page) {
    page_table_[table_index(sequence, index)] = page;
    pages_changed_ = true;
  }
  void copy_page(int32_t from, int32_t to);  // in every layer

  // The rows of the next step; those of one sequence are consecutive and ascending in position.
  void clear() {
    rows_ = 0;
    draws_ = 0;
  }
  void add_row(int32_t sequence, int32_t position, int32_t token) {
    const size_t row = static_cast<size_t>(rows_++);
    sequence_[row] = sequence;
    position_[row] = position;
    ids_[row] = token;
  }
  // Draws a token from the row added last; returns the index of the draw.
  int64_t add_draw(const sfx_sample_options& options) {
    draw_row_[static_cast<size_t>(draws_)] = static_cast<int32_t>(rows_ - 1);
    options_[static_cast<size_t>(draws_)] = options;
    return draws_++;
  }
  void run(const Weights& weights);

  // The experts of a token, [layers, top_k], by decreasing weight; where they are recorded.
  static constexpr uint16_t kUnknownExpert = 0xffff;
  const uint16_t* experts(int32_t page, int64_t token) const {
    return experts_.data() + static_cast<size_t>((page * kPageTokens + token) * config_.layers * config_.top_k);
  }

  int64_t rows() const { return rows_; }
  int64_t max_rows() const { return max_rows_; }
  int32_t token(int64_t draw) const { return token_[static_cast<size_t>(draw)]; }
  float logprob(int64_t draw) const { return logprob_[static_cast<size_t>(draw)]; }
  int64_t cache_bytes() const { return cache_.bytes(); }
  int64_t activation_bytes() const { return arena_.bytes(); }

 private:
  size_t table_index(int64_t sequence, int64_t index) const {
    return static_cast<size_t>(sequence * max_pages_ + index);
  }
  sfx_paged upload_pages();  // all but the rows, and the pages' memory, which is a layer's
  void upload_rows(int64_t count, sfx_paged* paged);
  void keep_drawn_rows(sfx_paged* paged);
  void write_keys(const LayerWeights& weights, const sfx_tensor& normed, const sfx_paged& paged);  // and values
  void attend(int64_t layer, const LayerWeights& weights, const sfx_tensor& normed, const sfx_paged& paged,
              sfx_tensor* x);  // adds into `x`
  // The part of a layer after attention: adds into `x`.
  void mlp(int64_t layer, const LayerWeights& weights, const sfx_tensor* normed, sfx_tensor* x);
  void record(int64_t layer);  // the experts that its router has chosen

  const sfx_backend* backend_;
  sfx_stream* stream_;
  Config config_;
  int64_t max_rows_, max_pages_, pages_, rows_ = 0, draws_ = 0;
  AdapterScratch adapters_;
  AdaptedLinear linear_;
  Arena arena_;
  Block cache_;
  RotaryTables tables_;
  std::vector<int32_t> ids_, sequence_, position_, page_table_, draw_row_, token_;  // on the host
  std::vector<float> logprob_;
  bool pages_changed_ = true;
  int32_t *device_sequence_, *device_position_, *device_page_table_, *expert_index_;
  float *x_, *normed_, *rstd_, *q_, *k_, *v_, *attention_, *router_logits_, *expert_weight_;
  float *q_raw_, *k_raw_, *gate_, *up_, *act_;
  std::vector<sfx_sample_options> options_;
  std::vector<uint16_t> experts_;  // [pages, kPageTokens, layers, top_k], or nothing
  std::vector<int32_t> chosen_;    // of one layer, on the host
};

}  // namespace sinkflex
#endif
