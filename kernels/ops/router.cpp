// Top-k routing. The k largest logits in descending order (ties to the lower id), weight = softmax over them.
// Backward: dlogit_j = weight_j (dweight_j - sum_i weight_i dweight_i) for the chosen, 0 elsewhere; exactly 0 for k
// = 1.
#include "elementary.h"
#include "operation.h"
#include "operators.h"

namespace SFX_NS {

namespace {

int32_t route(sfx_stream* s, const sfx_tensor* logits, int32_t top_k, bool replay, int32_t* index, float* weight) {
  SFX_CHECK_F32(logits);
  const int64_t n = logits->shape[0], experts = logits->shape[1];
  SFX_CHECK(top_k >= 1 && top_k <= 16 && top_k <= experts,
            "router: top_k must be in 1..16 and at most the number of experts");
  SFX_CHECK(unit_last(logits), "router: rows must be contiguous");
  const Operation op(s);
  parallel_ranges(s, n, 1, (double)n * (experts * top_k + 16), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++) {
      const float* row = data(logits) + r * logits->stride[0];
      int32_t* chosen = index + r * top_k;
      float values[16];
      float top;
      if (replay && chosen[0] >= 0) {
        top = -SFX_INFINITY;
        for (int32_t j = 0; j < top_k; j++) values[j] = row[chosen[j]], top = values[j] > top ? values[j] : top;
      } else {
        int32_t count = 0;
        // Insertion keeps the best k; a later id enters only if strictly larger.
        for (int64_t e = 0; e < experts; e++) {
          if (count == top_k && !(row[e] > values[count - 1])) continue;
          int32_t at = count < top_k ? count++ : count - 1;
          for (; at > 0 && row[e] > values[at - 1]; at--) values[at] = values[at - 1], chosen[at] = chosen[at - 1];
          values[at] = row[e], chosen[at] = (int32_t)e;
        }
        top = values[0];
      }
      v16 p = exp(sub(load_part(values, top_k), set1(top)));
      float lanes[16] = {};
      store_part(lanes, p, top_k);
      p = load(lanes);
      store_part(weight + r * top_k, div(p, set1(sum_lanes(p))), top_k);
    }
  });
  return SFX_OK;
}

}  // namespace

int32_t router_forward(sfx_stream* s, const sfx_tensor* logits, int32_t top_k, int32_t* index, float* weight) {
  return route(s, logits, top_k, false, index, weight);
}

int32_t router_replay(sfx_stream* s, const sfx_tensor* logits, int32_t top_k, int32_t* index, float* weight) {
  return route(s, logits, top_k, true, index, weight);
}

int32_t router_backward(sfx_stream* s, const float* dweight, const int32_t* index, const float* weight, int32_t top_k,
                        sfx_tensor* dlogits) {
  SFX_CHECK_F32(dlogits);
  const int64_t n = dlogits->shape[0], experts = dlogits->shape[1];
  SFX_CHECK(top_k >= 1 && top_k <= 16 && top_k <= experts,
            "router: top_k must be in 1..16 and at most the number of experts");
  SFX_CHECK(unit_last(dlogits), "router: rows must be contiguous");
  const Operation op(s);
  parallel_ranges(s, n, 1, (double)n * (experts + 16), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++) {
      float* row = data(dlogits) + r * dlogits->stride[0];
      const v16 w = load_part(weight + r * top_k, top_k), g = load_part(dweight + r * top_k, top_k);
      float lanes[16];
      store(lanes, mul(w, sub(g, set1(sum_lanes(mul(w, g))))));
      for (int64_t e = 0; e < experts; e++) row[e] = 0.0f;
      for (int32_t j = 0; j < top_k; j++) row[index[r * top_k + j]] = top_k == 1 ? 0.0f : lanes[j];
    }
  });
  return SFX_OK;
}

}  // namespace SFX_NS
