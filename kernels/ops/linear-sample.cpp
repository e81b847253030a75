// Draws one token a row from softmax(hidden w^T / T), restricted to top-k and top-p; the log-probability is that of the whole
// distribution, computed by the same functions as linear_logprob_forward. Greedy rows (T = 0) take the lowest id among the largest logits.
#include "operators.h"
#include "vocabulary.h"

namespace SFX_NS {

int32_t linear_sample(sfx_stream *stream, const sfx_tensor *hidden, const sfx_tensor *w, const sfx_sample_options *options, int32_t *token,
                      float *logprob) {
  SFX_CHECK_F32(hidden, w);
  SFX_CHECK(hidden->shape[1] == w->shape[1] && w->shape[0] > 0, "linear_sample: hidden [n,h] and w [V,h] disagree");
  SFX_CHECK(unit_last(hidden), "linear_sample: rows of hidden must be contiguous");
  const Operation op(stream);
  const int64_t n = hidden->shape[0], V = w->shape[0], units = (V + kUnit - 1) / kUnit, at_once = rows_at_once(V, n);
  float *const logits = op.floats(at_once * V);
  float *const weights = op.floats(team_size(stream) * V);
  int32_t *const order = op.take<int32_t>(team_size(stream) * V);
  for (int64_t begin = 0; begin < n; begin += at_once) {
    const int64_t rows = least(at_once, n - begin);
    const Product g = logits_product(data(hidden) + begin * hidden->stride[0], rows, hidden->stride[0], w, 0, V, logits, V);
    multiply(stream, &g, 1);
    const auto draw = [&](int64_t i, int32_t thread) {
      float *const z = logits + i * V, *const weight = weights + thread * V;
      const sfx_sample_options &o = options[begin + i];
      scale_logits(z, V, inverse_temperature(o.temperature));
      UnitSum total = sum_unit(z, least(kUnit, V));
      for (int64_t u = 1; u < units; u++) {
        const UnitSum pair[2] = {total, sum_unit(z + u * kUnit, least(kUnit, V - u * kUnit))};
        total = fold_units(pair, 2);
      }
      if (o.temperature > 0.0f)
        for (int64_t v = 0; v < V; v += 16) store_part(weight + v, exp(sub(load_part(z + v, V - v), set1(total.m))), V - v);
      const int32_t t = sfx::pick(z, weight, V, &o, order + thread * V);
      token[begin + i] = t;
      if (logprob) logprob[begin + i] = z[t] - log_sum(total);
    };
    if (team_size(stream) == 1 || rows * V < 20000)
      for (int64_t i = 0; i < rows; i++) draw(i, 0);
    else
      parallel(stream, rows, draw);
  }
  return SFX_OK;
}

}  // namespace SFX_NS
