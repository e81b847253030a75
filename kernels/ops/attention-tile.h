// The online softmax over key tiles that packed and paged attention share, so that both give the same bits. A tile is
// 64 keys anchored at position 0 of the segment. Each row keeps a running maximum m and sum l, seeded with the sink (m
// = s, l = 1). A key or a whole tile that a row cannot see is an exact no-op for it: its weight is +0, the maximum
// stays, the rescale is exactly 1.
#ifndef SINKFLEX_OPS_ATTENTION_TILE_H
#define SINKFLEX_OPS_ATTENTION_TILE_H

#include "attention-variants.h"
#include "gemm.h"

namespace SFX_NS {

constexpr int64_t kTile = 64;
constexpr int64_t kMaxRows = 64;  // rows (position x query head of a group) worked on together

// Which keys of the tile [j0, j0 + 64) the query at position t sees, as lane bounds: lane < upper and (lane >= lower or
// lane < prefix).
struct Visible {
  float upper, lower, prefix;
};
SFX_INLINE Visible visible(int64_t t, int64_t j0, const View& view) {
  const auto clamp = [](int64_t x) { return (float)(x < 0 ? 0 : x > kTile ? kTile : x); };
  return {clamp(t - j0 + 1), clamp(lowest(t, view) - j0), clamp(view.prefix - j0)};
}
// For queries [t0, t1): does any see a key of the tile; do all see all of it; bounds of the keys that matter.
SFX_INLINE bool tile_visible(int64_t t0, int64_t t1, int64_t j0, const View& view) {
  return j0 < t1 && (j0 < view.prefix || j0 + kTile - 1 >= lowest(t0, view));
}
SFX_INLINE bool tile_full(int64_t t0, int64_t t1, int64_t j0, const View& view) {
  return j0 + kTile - 1 <= t0 && (lowest(t1 - 1, view) <= j0 || j0 + kTile <= view.prefix);
}
SFX_INLINE int64_t tile_begin(int64_t t0, int64_t j0, const View& view) {
  return j0 < view.prefix ? 0 : most(lowest(t0, view) - j0, 0);
}
SFX_INLINE int64_t tile_end(int64_t t1, int64_t j0) { return t1 - j0 < kTile ? t1 - j0 : kTile; }
// The first tile at or after j0 that a query from t0 on may see: whole stretches that the mask forbids are jumped over.
SFX_INLINE int64_t tile_next(int64_t t0, int64_t j0, const View& view) {
  return j0 < view.prefix ? j0 : most(j0, lowest(t0, view) / kTile * kTile);
}

SFX_INLINE v16 mask_scores(v16 score, int v, Visible see) {
  const v16 lane = add(iota(), set1((float)(16 * v)));
  const m16 upper = less(lane, set1(see.upper));
  const m16 lower = either(less(set1(see.lower - 1.0f), lane), less(lane, set1(see.prefix)));
  return select(both(upper, lower), score, set1(-SFX_INFINITY));
}

struct SoftmaxRows {
  float m[kMaxRows], l[kMaxRows], alpha[kMaxRows], largest[kMaxRows], sum[kMaxRows];
};

SFX_INLINE void softmax_begin(SoftmaxRows* s, int64_t rows, int64_t group, const float* sink) {
  for (int64_t r = 0; r < kMaxRows; r++) {
    const float seed = sink && r < rows ? sink[r % group] : -SFX_INFINITY;
    s->m[r] = seed;
    s->l[r] = seed > -SFX_INFINITY ? 1.0f : 0.0f;
    s->largest[r] = -SFX_INFINITY;
    s->sum[r] = 0.0f;
  }
}

// scores[rows][64] -> weights exp(scale score - m) in place; alpha is the factor that the rows' outputs so far must
// take. Row r belongs to position t0 + r / group. `Whole`: every row sees every key. Only the vectors [v0, v1) of the
// tile hold scores; no row sees the others, which count as weight +0 and are not written.
template <bool Whole, bool Plain>
void softmax_tile_as(SoftmaxRows* s, float* scores, int64_t rows, int64_t group, int64_t t0, int64_t j0, int v0, int v1,
                     const View& view) {
  const v16 scale = set1(view.scale), none = set1(-SFX_INFINITY);
  for (int64_t r = 0; r < rows; r++) {
    float* row = scores + r * kTile;
    v16 x[4];
    const Visible see = Whole ? Visible{} : visible(t0 + r / group, j0, view);
#pragma GCC unroll 4
    for (int v = 0; v < 4; v++) {
      x[v] = none;
      if (!Whole && (v < v0 || v >= v1)) continue;
      x[v] = mul(load(row + 16 * v), scale);
      if (!Plain) x[v] = varied_score(x[v], view, r % group, t0 + r / group, j0 + 16 * v, nullptr);
      if (!Whole) x[v] = mask_scores(x[v], v, see);
      store(row + 16 * v, x[v]);
    }
    s->largest[r] = max_lanes(max(max(x[0], x[1]), max(x[2], x[3])));
  }
  for (int64_t r = 0; r < rows; r += 16) {
    const v16 m = load(s->m + r), next = max(m, load(s->largest + r));
    const v16 from = select(equal(next, none), zero(), next);  // nothing seen yet: all weights are 0
    store(s->alpha + r, select(equal(m, next), set1(1.0f), exp_down(sub(m, from))));
    store(s->m + r, next);
    store(s->largest + r, from);
  }
  for (int64_t r = 0; r < rows; r++) {
    float* row = scores + r * kTile;
    const v16 from = set1(s->largest[r]);
    v16 p[4];
#pragma GCC unroll 4
    for (int v = 0; v < 4; v++) {
      p[v] = zero();
      if (!Whole && (v < v0 || v >= v1)) continue;
      p[v] = exp_down(sub(load(row + 16 * v), from));
      store(row + 16 * v, p[v]);
    }
    s->sum[r] = sum_lanes(add(add(p[0], p[1]), add(p[2], p[3])));
  }
  for (int64_t r = 0; r < rows; r += 16) store(s->l + r, fma(load(s->l + r), load(s->alpha + r), load(s->sum + r)));
}

template <bool Whole>
SFX_INLINE void softmax_tile(SoftmaxRows* s, float* scores, int64_t rows, int64_t group, int64_t t0, int64_t j0, int v0,
                             int v1, const View& view) {
  if (view.plain)
    softmax_tile_as<Whole, true>(s, scores, rows, group, t0, j0, v0, v1, view);
  else
    softmax_tile_as<Whole, false>(s, scores, rows, group, t0, j0, v0, v1, view);
}

SFX_INLINE void rescale_rows(const SoftmaxRows* s, float* out, int64_t rows, int64_t width) {
  for (int64_t r = 0; r < rows; r++) {
    if (s->alpha[r] == 1.0f) continue;
    const v16 alpha = set1(s->alpha[r]);
    for (int64_t d = 0; d < width; d += 16) store(out + r * width + d, mul(load(out + r * width + d), alpha));
  }
}

// out / l, and lse = m + log l (l = 0: nothing was visible, out = 0, lse = -inf).
SFX_INLINE void softmax_end(SoftmaxRows* s, int64_t rows) {
  for (int64_t r = 0; r < rows; r += 16) {
    const v16 l = load(s->l + r);
    store(s->alpha + r, select(less(zero(), l), div(set1(1.0f), l), zero()));
    store(s->sum + r, select(less(zero(), l), add(load(s->m + r), log(l)), set1(-SFX_INFINITY)));
  }
}

// After softmax_end, for a sink function f other than the sigmoid: what outputs are multiplied by becomes f / l.
SFX_INLINE void scale_by_sink(SoftmaxRows* s, int64_t rows, int64_t group, int32_t function, const float* sink) {
  float logit[kMaxRows] = {};
  for (int64_t r = 0; r < rows; r++) logit[r] = sink[r % group];
  for (int64_t r = 0; r < rows; r += 16)
    store(s->alpha + r, mul(load(s->alpha + r), sink_terms(function, load(s->sum + r), load(logit + r)).f));
}

// out[rows][width] += P V over keys [begin, end) of a tile, one chain a row; values[key][stride].
// `finite`: the tile's values are all finite, so that a weight of 0 is a no-op; otherwise unseen keys are stepped over
// one by one.
[[maybe_unused]] static void weigh_values(const float* scores, int64_t rows, int64_t begin, int64_t end,
                                          const float* values, int64_t stride, int64_t depth, bool finite, float* out,
                                          int64_t width) {
  if (begin >= end) return;
  if (finite) {
    multiply_small(rows, depth, end - begin, scores + begin, kTile, 1, values + begin * stride, stride, out, width,
                   true);
    return;
  }
  for (int64_t r = 0; r < rows; r++)
    for (int64_t j = begin; j < end; j++) {
      if (scores[r * kTile + j] == 0.0f) continue;
      const v16 p = set1(scores[r * kTile + j]);
      for (int64_t d = 0; d < depth; d += 16)
        store_part(out + r * width + d,
                   fma(p, load_part(values + j * stride + d, depth - d), load_part(out + r * width + d, depth - d)),
                   depth - d);
    }
}

SFX_INLINE int64_t padded(int64_t depth) { return (depth + 15) / 16 * 16; }

// Positions worked on together: rows near 48, fewer under a small window, whose keys would otherwise be few among those
// computed.
SFX_INLINE int64_t positions_together(int64_t group, const sfx_attention_mask& mask) {
  const int64_t fit = group >= 48 ? 1 : 48 / group;
  return mask.window < 0 ? fit : least(fit, most(mask.window + 1, 8));
}

}  // namespace SFX_NS
#endif
