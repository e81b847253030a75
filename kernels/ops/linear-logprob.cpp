// The fused head. z = hidden w^T / T; logprob = z_target - lse; entropy = lse - sum p z, for the rows that have a
// target. Backward: dz_j = dlogprob ([j = target] - p_j) - dentropy p_j (log p_j + entropy); dhidden = dz w / T; dw +=
// dz^T hidden / T. Logits exist for a block of rows at a time (a few MiB), never for all; the backward computes them
// again. Chains: logits over the width; dhidden over the vocabulary ascending; dw over rows ascending.
#include "operators.h"
#include "vocabulary.h"

namespace SFX_NS {
namespace {

// The rows with a target, gathered.
struct Chosen {
  int64_t count;
  int32_t* row;
  float* hidden;
};
Chosen choose(const Scratch& scratch, sfx_stream* stream, const sfx_tensor* hidden, const int32_t* target) {
  const int64_t n = hidden->shape[0], h = hidden->shape[1];
  Chosen c = {0, scratch.take<int32_t>(n), nullptr};
  for (int64_t r = 0; r < n; r++)
    if (target[r] >= 0) c.row[c.count++] = (int32_t)r;
  c.hidden = scratch.floats(c.count * h);
  parallel_ranges(stream, c.count, 1, (double)c.count * h / 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++)
      memcpy(c.hidden + i * h, data(hidden) + c.row[i] * hidden->stride[0], (size_t)h * sizeof(float));
  });
  return c;
}

bool targets_valid(const int32_t* target, int64_t n, int64_t vocabulary) {
  for (int64_t r = 0; r < n; r++)
    if (target[r] >= vocabulary) return false;
  return true;
}

}  // namespace

int32_t linear_logprob_forward(sfx_stream* stream, const sfx_tensor* hidden, const sfx_tensor* w, const int32_t* target,
                               float temperature, float* logprob, float* entropy, float* lse) {
  SFX_CHECK_F32(hidden);
  SFX_CHECK_WEIGHT(w);
  SFX_CHECK(hidden->shape[1] == w->shape[1] && w->shape[0] > 0, "linear_logprob: hidden [n,h] and w [V,h] disagree");
  SFX_CHECK(unit_last(hidden), "linear_logprob: rows of hidden must be contiguous");
  SFX_CHECK(targets_valid(target, hidden->shape[0], w->shape[0]),
            "linear_logprob: a target lies outside the vocabulary");
  const Operation op(stream);
  const int64_t n = hidden->shape[0], h = hidden->shape[1], V = w->shape[0];
  for (int64_t r = 0; r < n; r++)
    if (target[r] < 0) {
      if (logprob) logprob[r] = 0.0f;
      if (entropy) entropy[r] = 0.0f;
      if (lse) lse[r] = 0.0f;
    }
  const Chosen c = choose(op, stream, hidden, target);
  const int64_t at_once = rows_at_once(team_size(stream), V, c.count);
  float* const logits = op.floats(at_once * V);
  const float inverse = inverse_temperature(temperature);
  for (int64_t begin = 0; begin < c.count; begin += at_once) {
    const int64_t rows = least(at_once, c.count - begin);
    const Product g = logits_product(c.hidden + begin * h, rows, h, w, 0, V, logits, V);
    multiply(stream, &g, 1);
    parallel_ranges(stream, rows, 1, (double)rows * V, [&](int64_t r0, int64_t r1) {
      for (int64_t i = r0; i < r1; i++) {
        float* z = logits + i * V;
        scale_logits(z, V, inverse);
        const UnitSum total = sum_row(z, V, nullptr);
        const int64_t r = c.row[begin + i];
        const float sum = log_sum(total);
        if (logprob) logprob[r] = z[target[r]] - sum;
        if (entropy) entropy[r] = log1(total.l) - total.u / total.l;
        if (lse) lse[r] = sum;
      }
    });
  }
  return SFX_OK;
}

int32_t linear_logprob_backward(sfx_stream* stream, const sfx_tensor* hidden, const sfx_tensor* w,
                                const int32_t* target, float temperature, const float* lse, const float* entropy,
                                const float* dlogprob, const float* dentropy, sfx_tensor* dhidden, sfx_tensor* dw) {
  SFX_CHECK_F32(hidden, dhidden, dw);
  SFX_CHECK_WEIGHT(w);
  SFX_CHECK(hidden->shape[1] == w->shape[1] && w->shape[0] > 0, "linear_logprob: hidden [n,h] and w [V,h] disagree");
  SFX_CHECK(unit_last(hidden) && unit_last(dhidden) && unit_last(dw), "linear_logprob: rows must be contiguous");
  SFX_CHECK(targets_valid(target, hidden->shape[0], w->shape[0]),
            "linear_logprob: a target lies outside the vocabulary");
  SFX_CHECK(!dentropy || entropy, "linear_logprob: dentropy needs the entropy of the forward");
  const Operation op(stream);
  const int64_t n = hidden->shape[0], h = hidden->shape[1], V = w->shape[0];
  const Chosen c = choose(op, stream, hidden, target);
  const int64_t at_once = rows_at_once(team_size(stream), V, c.count);
  float *const logits = op.floats(at_once * V), *const dh = dhidden ? op.floats(at_once * h) : nullptr;
  const float inverse = inverse_temperature(temperature);
  if (dhidden)
    for (int64_t r = 0; r < n; r++)
      if (target[r] < 0) memset(data(dhidden) + r * dhidden->stride[0], 0, (size_t)h * sizeof(float));
  for (int64_t begin = 0; begin < c.count; begin += at_once) {
    const int64_t rows = least(at_once, c.count - begin);
    const Product g = logits_product(c.hidden + begin * h, rows, h, w, 0, V, logits, V);
    multiply(stream, &g, 1);
    parallel_ranges(stream, rows, 1, (double)rows * V, [&](int64_t r0, int64_t r1) {
      for (int64_t i = r0; i < r1; i++) {
        float* z = logits + i * V;
        scale_logits(z, V, inverse);
        const int64_t r = c.row[begin + i];
        const float target_z = z[target[r]];
        const v16 sum = set1(lse[r]), dl = set1(-dlogprob[r] * inverse),
                  de = set1(dentropy ? -dentropy[r] * inverse : 0.0f);
        const v16 ent = set1(dentropy ? entropy[r] : 0.0f);
        for (int64_t v = 0; v < V; v += 16) {
          const v16 log_p = sub(load_part(z + v, V - v), sum), p = exp_down(log_p);
          v16 d = dl;
          if (dentropy) d = fma(de, add(max(log_p, set1(-200.0f)), ent), dl);
          store_part(z + v, mul(p, d), V - v);
        }
        // The target's own entry: dlogprob (1 - p) has no cancellation to lose when p is near 1.
        const float log_p = target_z - lse[r], p = exp1(log_p);
        float d = dlogprob[r] * inverse * (1.0f - p);
        if (dentropy) d -= dentropy[r] * inverse * p * (log_p + entropy[r]);
        z[target[r]] = d;
      }
    });
    if (dhidden) {
      Product back = {rows, h, V, logits, V, 1, nullptr, w->stride[0], w->stride[1], dh, h, false, false, nullptr};
      set_weight(&back, w, 0);
      multiply(stream, &back, 1);
      for (int64_t i = 0; i < rows; i++)
        memcpy(data(dhidden) + c.row[begin + i] * dhidden->stride[0], dh + i * h, (size_t)h * sizeof(float));
    }
    if (dw) {
      const Product grad = {V, h, rows,     logits,        1,    V,     c.hidden + begin * h,
                            h, 1, data(dw), dw->stride[0], true, false, nullptr};
      multiply(stream, &grad, 1);
    }
  }
  return SFX_OK;
}

}  // namespace SFX_NS
