// The scalar part of sampling: the min-p, top-k and top-p restriction, and the inverse of the cumulative distribution
// in ascending id. Plain float64 sums, so the same on every machine.
#include <algorithm>
#include <numeric>

#include "../../uniform.h"
#include "../team.h"

namespace {

// Descending, ties to the lower id.
struct Before {
  const float* logits;
  bool operator()(int32_t a, int32_t b) const { return logits[a] > logits[b] || (logits[a] == logits[b] && a < b); }
};

}  // namespace

namespace sfx {

int64_t pick_interval(const float* weight, int64_t count, double fraction, double* left) {
  double total = 0;
  for (int64_t i = 0; i < count; i++) total += weight[i];
  const double threshold = fraction * total;
  const int64_t at = pick_threshold(weight, count, threshold);
  double before = 0;
  for (int64_t i = 0; i < at; i++) before += weight[i];
  *left = threshold - before;
  return at;
}

int64_t pick_threshold(const float* weight, int64_t count, double threshold) {
  double sum = 0;
  int64_t last = 0;
  for (int64_t i = 0; i < count; i++) {
    if (weight[i] == 0.0f) continue;
    sum += weight[i];
    last = i;
    if (sum > threshold) break;
  }
  return last;
}

void pick_largest(const float* logits, int64_t vocabulary, int64_t count, int32_t* order) {
  std::iota(order, order + vocabulary, 0);
  std::partial_sort(order, order + count, order + vocabulary, Before{logits});
}

int32_t pick_restricted(const float* logits, const float* weight, int64_t vocabulary, const sfx_sample_options& o,
                        int32_t* order) {
  const Before before{logits};
  int64_t allowed = 0;
  for (int64_t i = 0; i < vocabulary; i++)
    if (weight[i] >= o.min_p) order[allowed++] = (int32_t)i;  // the largest weighs 1
  if (allowed == 0) return 0;                                 // nothing is comparable: the logits are not finite
  const bool top_k = o.top_k > 0 && o.top_k < allowed;
  const int64_t limit = top_k ? o.top_k : allowed;
  int64_t kept = limit;
  if (top_k) std::partial_sort(order, order + limit, order + allowed, before);
  if (o.top_p < 1.0f) {
    double all = 0, sum = 0;
    for (int64_t i = 0; i < limit; i++) all += weight[order[i]];
    const double enough = (double)o.top_p * all;
    // Sorted piece by piece: the nucleus is usually a small part of the vocabulary.
    int64_t sorted = top_k ? limit : 0, i = 0;
    do {
      if (i == sorted) {
        const int64_t next = std::min(limit, std::max<int64_t>(32, 4 * sorted));
        std::partial_sort(order + sorted, order + next, order + allowed, before);
        sorted = next;
      }
      sum += weight[order[i++]];
    } while (i < limit && sum < enough);
    kept = i;
  }
  std::sort(order, order + kept);
  double total = 0;
  for (int64_t i = 0; i < kept; i++) total += weight[order[i]];
  const double threshold = uniform(o) * total;
  double sum = 0;
  int32_t last = order[0];
  for (int64_t i = 0; i < kept; i++) {
    if (weight[order[i]] == 0.0f) continue;
    sum += weight[order[i]];
    last = order[i];
    if (sum > threshold) break;
  }
  return last;
}

}  // namespace sfx
