// The distribution over the vocabulary, in units of 256 ids from id 0, that training and sampling share bit for bit.
// A unit's statistics are relative to its own maximum; units fold in ascending order. Lanes beyond the vocabulary are exact no-ops.
#ifndef SINKFLEX_OPS_VOCABULARY_H
#define SINKFLEX_OPS_VOCABULARY_H

#include "gemm.h"
#include "elementary.h"
#include "operation.h"

namespace SFX_NS {

constexpr int64_t kUnit = 256;

// m = max z, l = sum exp(z - m), u = sum exp(z - m) (z - m)
struct UnitSum {
  float m, l, u;
};

SFX_INLINE float inverse_temperature(float temperature) { return temperature > 0.0f ? 1.0f / temperature : 1.0f; }

// The only place where a temperature meets a logit. Scales `count` logits in place.
[[maybe_unused]] static void scale_logits(float *z, int64_t count, float inverse) {
  if (inverse == 1.0f) return;
  for (int64_t i = 0; i < count; i += 16) store_part(z + i, mul(load_part(z + i, count - i), set1(inverse)), count - i);
}

[[maybe_unused]] static UnitSum sum_unit(const float *z, int64_t count) {
  v16 x[16];
  const v16 none = set1(-SFX_INFINITY);
  v16 top = none;
  for (int i = 0; i < 16; i++) {
    const int64_t left = count - 16 * i;
    x[i] = left <= 0 ? none : load_part(z + 16 * i, left);
    if (left > 0 && left < 16) x[i] = select(less(iota(), set1((float)left)), x[i], none);
    top = max(top, x[i]);
  }
  UnitSum s;
  s.m = max_lanes(top);
  const v16 m = set1(s.m);
  v16 l = zero(), u = zero();
  for (int i = 0; i < 16; i++) {
    const v16 d = sub(x[i], m), e = exp_down(d);
    l = add(l, e);
    u = fma(e, max(d, set1(-200.0f)), u);  // exp is 0 there; keeps 0 * inf out
  }
  s.l = sum_lanes(l);
  s.u = sum_lanes(u);
  return s;
}

// Folds units 0 .. count-1, `stride` apart, for sixteen rows at a time would change no bit; rows are few here.
SFX_INLINE UnitSum fold_units(const UnitSum *units, int64_t count) {
  UnitSum t = units[0];
  for (int64_t i = 1; i < count; i++) {
    const UnitSum &a = units[i];
    const float m = a.m > t.m ? a.m : t.m;
    float change[16] = {t.m - m, a.m - m};
    v16 e = exp(load(change));
    float factor[16];
    store(factor, e);
    t.u = factor[0] * (t.u + change[0] * t.l) + factor[1] * (a.u + change[1] * a.l);
    t.l = t.l * factor[0] + a.l * factor[1];
    t.m = m;
  }
  return t;
}
SFX_INLINE float log_sum(const UnitSum &t) { return t.m + log1(t.l); }

// logits[rows, ldl] = hidden w^T over ids [v0, v0 + count), unscaled.
SFX_INLINE Product logits_product(const float *hidden, int64_t rows, int64_t row, const sfx_tensor *w, int64_t v0, int64_t count, float *logits,
                                  int64_t stride) {
  return {rows, count, w->shape[1], hidden, row, 1, data(w) + v0 * w->stride[0], w->stride[1], w->stride[0], logits, stride, false, false, nullptr};
}

// Rows whose logits are held at once: about 16 MiB, at least 64 rows.
SFX_INLINE int64_t rows_at_once(int64_t vocabulary, int64_t rows) {
  const int64_t fit = most(64, 4 * 1024 * 1024 / most(vocabulary, 1) / 64 * 64);
  return least(least(fit, 2048), rows);
}

}  // namespace SFX_NS
#endif
