// The scalar part of sampling: a counter-based uniform (Philox-4x32-10 under key[0..1], counter key[2..3], position), the top-k and top-p
// restriction, and the inverse of the cumulative distribution in ascending id. Plain float64 sums, so the same on every machine.
#include <algorithm>
#include <numeric>

#include "../team.h"

namespace {

// Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011)
void philox(const uint32_t key_in[2], const uint32_t counter_in[4], uint32_t out[4]) {
  uint32_t k0 = key_in[0], k1 = key_in[1], c0 = counter_in[0], c1 = counter_in[1], c2 = counter_in[2], c3 = counter_in[3];
  for (int round = 0; round < 10; round++) {
    const uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
    c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
    c1 = (uint32_t)b;
    c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
    c3 = (uint32_t)a;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

double uniform(const sfx_sample_options &o) {
  const uint32_t counter[4] = {o.key[2], o.key[3], o.position, 0};
  uint32_t r[4];
  philox(o.key, counter, r);
  return (double)(((uint64_t)r[0] << 21) | (r[1] >> 11)) * 0x1p-53;  // [0, 1)
}

}  // namespace

namespace sfx {

int32_t pick(const float *logits, const float *weight, int64_t vocabulary, const sfx_sample_options *o, int32_t *order) {
  if (!(o->temperature > 0.0f)) {
    int64_t best = 0;
    for (int64_t v = 1; v < vocabulary; v++)
      if (logits[v] > logits[best]) best = v;
    return (int32_t)best;
  }
  const double u = uniform(*o);
  const bool top_k = o->top_k > 0 && o->top_k < vocabulary, top_p = o->top_p < 1.0f;
  int64_t kept = vocabulary;
  if (top_k || top_p) {
    std::iota(order, order + vocabulary, 0);
    const auto before = [logits](int32_t a, int32_t b) { return logits[a] > logits[b] || (logits[a] == logits[b] && a < b); };
    if (top_k) kept = o->top_k;
    std::partial_sort(order, order + kept, order + vocabulary, before);
    if (top_p) {
      double all = 0, sum = 0;
      for (int64_t i = 0; i < kept; i++) all += weight[order[i]];
      int64_t i = 0;
      do sum += weight[order[i++]];
      while (i < kept && sum < (double)o->top_p * all);
      kept = i;
    }
    std::sort(order, order + kept);
  }
  const bool whole = kept == vocabulary;
  double total = 0;
  for (int64_t i = 0; i < kept; i++) total += weight[whole ? i : order[i]];
  const double threshold = u * total;
  double sum = 0;
  int64_t last = whole ? 0 : order[0];
  for (int64_t i = 0; i < kept; i++) {
    const int64_t v = whole ? i : order[i];
    if (weight[v] == 0.0f) continue;
    sum += weight[v];
    last = v;
    if (sum > threshold) break;
  }
  return (int32_t)last;
}

}  // namespace sfx
