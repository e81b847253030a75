// What a request changes of the logits before a draw: a bias, penalties on tokens that have been said, and stop tokens
// that may not come yet. Kept as the edits that the sampling operator applies; a draw costs the token drawn.
#ifndef SINKFLEX_MODEL_LOGIT_RULES_H
#define SINKFLEX_MODEL_LOGIT_RULES_H

#include <cmath>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "../backend.h"

namespace sinkflex {

class LogitRules {
 public:
  std::vector<int32_t> bias_tokens;
  std::vector<float> bias;
  // Presence is taken once from a token that this turn has drawn, frequency for each time; repetition divides a
  // positive logit, and multiplies a negative one, of every token of the sequence.
  float presence = 0, frequency = 0, repetition = 1;
  int32_t min_tokens = 0;  // drawn before a stop token may come

  // `ids`: the sequence up to the first draw.
  void begin(const std::vector<int32_t>& ids, const std::vector<int32_t>& stop_tokens) {
    for (size_t i = 0; i < bias.size(); ++i) edits_[at(bias_tokens[i])].before += bias[i];
    if (repetition != 1)
      for (const int32_t id : ids) edits_[at(id)].factor = repetition;
    if (min_tokens > 0) {
      for (const int32_t id : stop_tokens) edits_[at(id)].after = -INFINITY;
      banned_ = stop_tokens;
    }
  }

  void drawn(int32_t token) {
    if (presence != 0 || frequency != 0 || repetition != 1) {
      sfx_logit_edit& e = edits_[at(token)];
      e.factor = repetition;
      e.after -= frequency + (said_.emplace(token, true).second ? presence : 0.0f);
    }
    if (++count_ == min_tokens)
      for (const int32_t id : banned_) edits_[at(id)].after = 0;
  }

  const std::vector<sfx_logit_edit>& edits() const { return edits_; }

 private:
  size_t at(int32_t token) {
    const auto [found, fresh] = index_.emplace(token, edits_.size());
    if (fresh) edits_.push_back({token, 0, 1, 0});
    return found->second;
  }

  std::unordered_map<int32_t, size_t> index_;
  std::unordered_map<int32_t, bool> said_;
  std::vector<sfx_logit_edit> edits_;
  std::vector<int32_t> banned_;
  int32_t count_ = 0;
};

}  // namespace sinkflex
#endif
