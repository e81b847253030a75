// Draws one token a row from softmax(hidden w^T / T), restricted to min-p, top-k and top-p; the log-probability is that
// of the whole distribution before any edit, computed by the same functions as linear_logprob_forward. Greedy rows (T =
// 0) take the lowest id among the largest logits.
#include "../uniform.h"
#include "operators.h"
#include "vocabulary.h"

namespace SFX_NS {
namespace {

void weigh(const float* z, int64_t count, float largest, float* weight) {
  for (int64_t v = 0; v < count; v += 16)
    store_part(weight + v, exp_down(sub(load_part(z + v, count - v), set1(largest))), count - v);
}

int32_t lowest_of_largest(const float* z, int64_t vocabulary, const UnitSum* unit, float largest) {
  int64_t u = 0;
  while ((u + 1) * kUnit < vocabulary && unit[u].m < largest) u++;
  int64_t v = u * kUnit;
  while (v + 1 < vocabulary && z[v] < largest) v++;
  return (int32_t)v;
}

// `to` is `z`, whose logits are scaled by `inverse`, with the edits of a row.
void edit(const float* z, int64_t vocabulary, const sfx_sample_options& o, float inverse, float* to) {
  memcpy(to, z, (size_t)vocabulary * sizeof(float));
  for (int64_t i = 0; i < o.edits; i++) {
    const sfx_logit_edit& e = o.edit[i];
    float& x = to[e.token];
    x += e.before * inverse;
    x = x > 0.0f ? x / e.factor : x * e.factor;
    x += e.after * inverse;
  }
}

}  // namespace

int32_t linear_sample(sfx_stream* stream, const sfx_tensor* hidden, const sfx_tensor* w,
                      const sfx_sample_options* options, int32_t* token, float* logprob) {
  SFX_CHECK_F32(hidden);
  SFX_CHECK_WEIGHT(w);
  SFX_CHECK(hidden->shape[1] == w->shape[1] && w->shape[0] > 0, "linear_sample: hidden [n,h] and w [V,h] disagree");
  SFX_CHECK(unit_last(hidden), "linear_sample: rows of hidden must be contiguous");
  const Operation op(stream);
  const int64_t n = hidden->shape[0], V = w->shape[0], units = (V + kUnit - 1) / kUnit,
                at_once = rows_at_once(team_size(stream), V, n);
  float* const logits = op.floats(at_once * V);
  float* const weights = op.floats(team_size(stream) * V);
  int32_t* const order = op.take<int32_t>(team_size(stream) * V);
  bool edited = false;
  for (int64_t i = 0; i < n; i++) edited |= options[i].edits > 0;
  float* const edits = edited ? op.floats(team_size(stream) * V) : nullptr;
  UnitSum* const sums = op.take<UnitSum>(team_size(stream) * units);
  for (int64_t begin = 0; begin < n; begin += at_once) {
    const int64_t rows = least(at_once, n - begin);
    const Product g =
        logits_product(data(hidden) + begin * hidden->stride[0], rows, hidden->stride[0], w, 0, V, logits, V);
    multiply(stream, &g, 1);
    const auto draw = [&](int64_t i, int32_t thread) {
      float *z = logits + i * V, *const weight = weights + thread * V;
      const sfx_sample_options& o = options[begin + i];
      const float inverse = inverse_temperature(o.temperature);
      scale_logits(z, V, inverse);
      UnitSum* const unit = sums + thread * units;
      UnitSum total = sum_row(z, V, unit);
      const float* const raw = z;
      const float sum = log_sum(total);
      if (o.alternatives > 0) {
        sfx::pick_largest(raw, V, o.alternatives, order + thread * V);
        for (int32_t a = 0; a < o.alternatives; a++) {
          o.alternative[a] = order[thread * V + a];
          o.alternative_logprob[a] = raw[o.alternative[a]] - sum;
        }
      }
      if (o.edits > 0) {
        edit(raw, V, o, inverse, edits + thread * V);
        z = edits + thread * V;
        total = sum_row(z, V, unit);
      }
      int32_t t;
      if (!(o.temperature > 0.0f)) {
        t = lowest_of_largest(z, V, unit, total.m);
      } else if ((o.top_k > 0 && o.top_k < V) || o.top_p < 1.0f || o.min_p > 0.0f) {
        weigh(z, V, total.m, weight);
        t = sfx::pick_restricted(z, weight, V, o, order + thread * V);
      } else {
        // The unit first, by the units' sums; then the id inside it.
        for (int64_t u = 0; u < units; u += 16) {
          float top[16] = {}, sum[16] = {};
          for (int64_t l = 0; l < 16 && u + l < units; l++) top[l] = unit[u + l].m - total.m, sum[l] = unit[u + l].l;
          store_part(weight + u, mul(load(sum), exp_down(load(top))), units - u);
        }
        double left = 0;
        const int64_t u = sfx::pick_interval(weight, units, sfx::uniform(o), &left), v0 = u * kUnit,
                      count = least(kUnit, V - v0);
        weigh(z + v0, count, total.m, weight);
        t = (int32_t)(v0 + sfx::pick_threshold(weight, count, left));
      }
      token[begin + i] = t;
      if (logprob) logprob[begin + i] = raw[t] - sum;
    };
    if (team_size(stream) == 1 || rows * V < 20000)
      for (int64_t i = 0; i < rows; i++) draw(i, 0);
    else
      parallel(stream, rows, draw);
  }
  return SFX_OK;
}

}  // namespace SFX_NS
