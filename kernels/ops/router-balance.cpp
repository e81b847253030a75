// What the load-balancing loss of a mixture of experts needs: how often each expert was chosen, and the mean of the
// router's full softmax (over all experts, unlike the weights of the chosen). The loss itself, E sum_e f_e P_e over all
// layers, is the pass's; f_e carries no gradient.
#include "elementary.h"
#include "operation.h"
#include "operators.h"

namespace SFX_NS {

namespace {

constexpr int64_t kBlock = 256;  // tokens of one partial sum

// p[0, experts) = softmax(row)
void softmax(const float* row, int64_t experts, float* p) {
  v16 top = set1(-SFX_INFINITY);
  int64_t e = 0;
  for (; e + 16 <= experts; e += 16) top = max(top, load(row + e));
  float peak = max_lanes(top);
  for (; e < experts; e++) peak = row[e] > peak ? row[e] : peak;
  v16 sum = zero();
  for (e = 0; e < experts; e += 16) {
    store_part(p + e, exp_down(sub(load_part(row + e, experts - e), set1(peak))), experts - e);
    sum = add(sum, load_part(p + e, experts - e));
  }
  const v16 all = set1(sum_lanes(sum));
  for (e = 0; e < experts; e += 16) store_part(p + e, div(load_part(p + e, experts - e), all), experts - e);
}

}  // namespace

int32_t router_balance(sfx_stream* s, const sfx_tensor* logits, const int32_t* index, int32_t top_k, double* sums) {
  SFX_CHECK_F32(logits);
  SFX_CHECK(unit_last(logits), "router: rows must be contiguous");
  const Operation op(s);
  const int64_t n = logits->shape[0], experts = logits->shape[1], blocks = (n + kBlock - 1) / kBlock;
  double* const parts = op.take<double>(blocks * experts);
  float* const rows = op.floats(blocks * experts);
  parallel_ranges(s, blocks, 1, (double)n * (experts + 16), [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; b++) {
      double* const part = parts + b * experts;
      float* const p = rows + b * experts;
      for (int64_t e = 0; e < experts; e++) part[e] = 0;
      for (int64_t r = b * kBlock; r < least(n, (b + 1) * kBlock); r++) {
        softmax(data(logits) + r * logits->stride[0], experts, p);
        for (int64_t e = 0; e < experts; e++) part[e] += (double)p[e];
      }
    }
  });
  for (int64_t i = 0; i < n * top_k; i++) sums[index[i]] += 1;
  for (int64_t b = 0; b < blocks; b++)
    for (int64_t e = 0; e < experts; e++) sums[experts + e] += parts[b * experts + e];
  return SFX_OK;
}

int32_t router_balance_backward(sfx_stream* s, const sfx_tensor* logits, const float* share, float factor,
                                sfx_tensor* dlogits) {
  SFX_CHECK_F32(logits, dlogits);
  SFX_CHECK(unit_last(logits) && unit_last(dlogits), "router: rows must be contiguous");
  const Operation op(s);
  const int64_t n = logits->shape[0], experts = logits->shape[1], blocks = (n + kBlock - 1) / kBlock;
  float* const rows = op.floats(blocks * experts);
  parallel_ranges(s, blocks, 1, (double)n * (experts + 16), [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; b++) {
      float* const p = rows + b * experts;
      for (int64_t r = b * kBlock; r < least(n, (b + 1) * kBlock); r++) {
        softmax(data(logits) + r * logits->stride[0], experts, p);
        v16 dot = zero();
        for (int64_t e = 0; e < experts; e += 16)
          dot = fma(load_part(p + e, experts - e), load_part(share + e, experts - e), dot);
        const v16 mean = set1(sum_lanes(dot)), by = set1(factor);
        float* const to = data(dlogits) + r * dlogits->stride[0];
        for (int64_t e = 0; e < experts; e += 16) {
          const v16 pull = sub(load_part(share + e, experts - e), mean);
          const v16 change = mul(by, mul(load_part(p + e, experts - e), pull));
          store_part(to + e, add(load_part(to + e, experts - e), change), experts - e);
        }
      }
    }
  });
  return SFX_OK;
}

}  // namespace SFX_NS
