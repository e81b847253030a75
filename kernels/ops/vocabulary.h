// The distribution over the vocabulary, in units of 256 ids from id 0, that training and sampling share bit for bit.
// A unit's statistics are relative to its own maximum; units fold in ascending order. Lanes beyond the vocabulary are
// exact no-ops.
#ifndef SINKFLEX_OPS_VOCABULARY_H
#define SINKFLEX_OPS_VOCABULARY_H

#include "elementary.h"
#include "gemm.h"
#include "operation.h"

namespace SFX_NS {

constexpr int64_t kUnit = 256;

// m = max z, l = sum exp(z - m), u = sum exp(z - m) (z - m)
struct UnitSum {
  float m, l, u;
};

SFX_INLINE float inverse_temperature(float temperature) { return temperature > 0.0f ? 1.0f / temperature : 1.0f; }

// The only place where a temperature meets a logit. Scales `count` logits in place.
[[maybe_unused]] static void scale_logits(float* z, int64_t count, float inverse) {
  if (inverse == 1.0f) return;
  for (int64_t i = 0; i < count; i += 16) store_part(z + i, mul(load_part(z + i, count - i), set1(inverse)), count - i);
}

[[maybe_unused]] static UnitSum sum_unit(const float* z, int64_t count) {
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

// The statistics of two neighbouring runs of units.
SFX_INLINE UnitSum fold_units(const UnitSum* two) {
  const UnitSum &a = two[0], &b = two[1];
  const float m = b.m > a.m ? b.m : a.m;
  const float change[16] = {a.m - m, b.m - m};
  float factor[16];
  store(factor, exp_down(load(change)));
  return {m, a.l * factor[0] + b.l * factor[1],
          factor[0] * (a.u + change[0] * a.l) + factor[1] * (b.u + change[1] * b.l)};
}
SFX_INLINE float log_sum(const UnitSum& t) { return t.m + log1(t.l); }

// logits[rows, ldl] = hidden w^T over ids [v0, v0 + count), unscaled.
SFX_INLINE Product logits_product(const float* hidden, int64_t rows, int64_t row, const sfx_tensor* w, int64_t v0,
                                  int64_t count, float* logits, int64_t stride) {
  Product g = {rows,         count,        w->shape[1], hidden, row,   1,     nullptr,
               w->stride[1], w->stride[0], logits,      stride, false, false, nullptr};
  set_weight(&g, w, v0 * w->stride[0]);
  return g;
}

// Statistics of one scaled row, unit by unit into `units` when given, and folded.
[[maybe_unused]] static UnitSum sum_row(const float* z, int64_t vocabulary, UnitSum* units) {
  UnitSum total = {};
  for (int64_t v = 0, i = 0; v < vocabulary; v += kUnit, i++) {
    const UnitSum unit = sum_unit(z + v, least(kUnit, vocabulary - v));
    if (units) units[i] = unit;
    const UnitSum pair[2] = {total, unit};
    total = i == 0 ? unit : fold_units(pair);
  }
  return total;
}

// Rows whose logits are held at once: 1 MiB of them, so that they stay in the second-level cache, yet at least 384 rows
// to pay for packing w and for passing over dw; for a large vocabulary rather within 64 MiB, and always some for each
// thread.
SFX_INLINE int64_t rows_at_once(int64_t threads, int64_t vocabulary, int64_t rows) {
  const int64_t cached = 256 * 1024 / most(vocabulary, 1), bounded = 16 * 1024 * 1024 / most(vocabulary, 1);
  return least(most(most(cached, least(384, bounded)), 48 * threads), rows);
}

}  // namespace SFX_NS
#endif
