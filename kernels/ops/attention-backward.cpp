// Packed sink attention, backward, without any n x n array. With P = exp(scale q k - lse), delta = rowsum(dO O):
// dV = P^T dO; dP = dO V^T; dS = P (dP - delta); dQ = scale dS K; dK = scale dS^T Q; dsink_h = -sum_rows exp(sink_h -
// lse) delta. One task is one stripe of keys of one key head of one segment; its queries ascend, so every chain over
// queries (dK, dV) ascends. Stripes follow each other over the same queries: a block of queries goes on in a stripe
// when the stripe of earlier keys is done with it, so every chain over keys (dQ) ascends too, whatever the stripes and
// threads are, and nothing is computed twice. The gradients of a key head sum over its query heads, position by
// position.
#include <sched.h>

#include "attention-segments.h"
#include "attention-storage.h"
#include "operators.h"

namespace SFX_NS {
namespace {

// P and dS of one tile, in place over the scores and dP: vectors [v0, v1).
template <bool Whole, bool Plain>
void weights_and_derivative(float* scores, float* dscores, int64_t rows, int64_t group, int64_t t0, int64_t j0, int v0,
                            int v1, const float* lse, const float* delta, const View& view) {
  const v16 scale = set1(view.scale);
  for (int64_t r = 0; r < rows; r++) {
    float *row = scores + r * kTile, *drow = dscores + r * kTile;
    const v16 from = set1(lse[r]), centre = set1(delta[r]);
    const Visible see = Whole ? Visible{} : visible(t0 + r / group, j0, view);
    for (int v = v0; v < v1; v++) {
      v16 x = mul(load(row + 16 * v), scale), slope;
      if (!Plain) x = varied_score(x, view, r % group, t0 + r / group, j0 + 16 * v, &slope);
      if (!Whole) x = mask_scores(x, v, see);
      const v16 p = exp_down(sub(x, from));  // a score never exceeds its row's lse by more than rounding
      v16 d = mul(p, sub(load(drow + 16 * v), centre));
      if (!Plain) d = mul(d, slope);
      if (!Whole) d = select(equal(x, set1(-SFX_INFINITY)), zero(), d);
      store(row + 16 * v, p);
      store(drow + 16 * v, d);
    }
  }
}

// What the rows' lse and delta become under the sink function and a gradient of the lse, and the sink's own gradient.
void apply_sink(const float* sink, int32_t function, const float* dlse, int64_t n, int64_t heads, const float* lse,
                float* used_lse, float* delta, float* dsink) {
  for (int64_t h = 0; h < heads; h += 16) {
    const int64_t lanes = heads - h;
    const v16 logit = sink ? load_part(sink + h, lanes) : set1(-SFX_INFINITY);
    v16 sum = dsink ? load_part(dsink + h, lanes) : zero();
    for (int64_t t = 0; t < n; t++) {
      const v16 total = load_part(lse + t * heads + h, lanes);
      v16 d = load_part(delta + t * heads + h, lanes);
      const v16 g = dlse ? load_part(dlse + t * heads + h, lanes) : zero();
      if (function == SFX_SINK_SIGMOID) {
        if (dlse) store_part(delta + t * heads + h, d = sub(d, g), lanes);
        if (!dsink) continue;
        v16 p = exp(sub(logit, total));
        p = select(equal(logit, total), set1(1.0f), p);
        p = select(equal(logit, set1(-SFX_INFINITY)), zero(), p);
        sum = fma(negate(p), d, sum);
        continue;
      }
      const SinkTerms terms = sink_terms(function, total, logit);
      sum = fma(terms.sink, d, sum);
      store_part(used_lse + t * heads + h, sub(total, terms.log_f), lanes);
      d = mul(d, terms.ratio);
      store_part(delta + t * heads + h, dlse ? sub(d, div(g, terms.f)) : d, lanes);
    }
    if (dsink) store_part(dsink + h, sum, lanes);
  }
}

// Stripes: `tiles` key tiles each. progress[task] counts the blocks of queries that a stripe is done with.
struct Stripes {
  int64_t tiles, count;
  int32_t* segment;  // [count] over all segments, those of a segment in order of keys
  int64_t* first;    // [segments] of a segment
  int64_t* progress;
};

Stripes cut_stripes(const Scratch& scratch, const Segments& s, int64_t kv_heads, int64_t team) {
  Stripes p = {};
  const int64_t share = s.tiles * kv_heads / (4 * team);
  p.tiles = team == 1 ? most(s.tiles, 1) : most(share, 4);
  for (int64_t i = 0; i < s.count; i++) p.count += (s.first_tile[i + 1] - s.first_tile[i] + p.tiles - 1) / p.tiles;
  p.segment = scratch.take<int32_t>(p.count);
  p.first = scratch.take<int64_t>(s.count);
  p.progress = scratch.take<int64_t>(p.count * kv_heads);
  for (int64_t i = 0, at = 0; i < s.count; i++) {
    p.first[i] = at;
    for (int64_t j = s.first_tile[i]; j < s.first_tile[i + 1]; j += p.tiles) p.segment[at++] = (int32_t)i;
  }
  for (int64_t i = 0; i < p.count * kv_heads; i++) p.progress[i] = 0;
  return p;
}

void wait_for(const int64_t* progress, int64_t block) {
  for (int tries = 0; __atomic_load_n(progress, __ATOMIC_ACQUIRE) <= block; tries++)
    if (tries > 64) sched_yield();
}

int32_t backward_f32(sfx_stream* stream, const sfx_tensor* dout, const sfx_tensor* q, const sfx_tensor* k,
                     const sfx_tensor* v, const float* sink, const sfx_tensor* out, const float* lse,
                     const int32_t* cu_seqlens, int64_t segments, const sfx_attention_mask* mask, sfx_tensor* dq,
                     sfx_tensor* dk, sfx_tensor* dv, float* dsink) {
  const int64_t heads = q->shape[1], kv_heads = k->shape[1], depth = q->shape[2], n = q->shape[0];
  SFX_CHECK(kv_heads > 0 && heads % kv_heads == 0 && heads / kv_heads <= kMaxRows,
            "attention: query heads must be a multiple of key heads, at most 64 a group");
  SFX_CHECK(unit_last(q) && unit_last(k) && unit_last(v) && unit_last(out) && unit_last(dout) && unit_last(dq) &&
                unit_last(dk) && unit_last(dv),
            "attention: heads must be contiguous in D");
  if (const char* problem = variant_problem(*mask)) return sfx::fail(SFX_BAD_ARGUMENT, problem);
  const Operation op(stream);
  const int64_t group = heads / kv_heads, width = padded(depth), together = positions_together(group, *mask);
  const Segments s = cut_segments(op, cu_seqlens, segments);
  float *keys = op.floats(s.tiles * kv_heads * depth * kTile), *values = op.floats(s.tiles * kv_heads * depth * kTile);
  float* delta = op.floats(n * heads);
  transpose_tiles(stream, s, k, keys, nullptr);
  transpose_tiles(stream, s, v, values, nullptr);
  parallel_ranges(stream, n, 1, (double)n * heads * width / 8, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; t++)
      for (int64_t h = 0; h < heads; h++) {
        const float *a = data(dout) + t * dout->stride[0] + h * dout->stride[1],
                    *b = data(out) + t * out->stride[0] + h * out->stride[1];
        v16 sum = zero();
        for (int64_t d = 0; d < depth; d += 16)
          sum = fma(load_part(a + d, depth - d), load_part(b + d, depth - d), sum);
        delta[t * heads + h] = sum_lanes(sum);
      }
  });
  const int32_t function = sink ? sink_function(*mask) : SFX_SINK_SIGMOID;
  const float* const dlse = mask->variant ? mask->variant->dlse : nullptr;
  float* const used_lse = function == SFX_SINK_SIGMOID ? nullptr : op.floats(n * heads);
  if (dlse || used_lse || (dsink && sink))
    apply_sink(sink, function, dlse, n, heads, lse, used_lse, delta, sink ? dsink : nullptr);
  if (used_lse) lse = used_lse;
  const int64_t work_floats = kMaxRows * (2 * kTile + 3 * width);
  float* const work = op.floats(team_size(stream) * work_floats);
  const Stripes stripes = cut_stripes(op, s, kv_heads, team_size(stream));
  parallel(stream, stripes.count * kv_heads, [&](int64_t task, int32_t thread) {
    const int64_t stripe = task / kv_heads, h = task % kv_heads, segment = stripes.segment[stripe];
    const int64_t base = s.cu[segment], length = s.cu[segment + 1] - base;
    const int64_t first_stripe = stripes.first[segment], width_keys = stripes.tiles * kTile;
    const int64_t key0 = (stripe - first_stripe) * width_keys, key1 = least(key0 + width_keys, length);
    const View view = view_of(*mask, base, h * group);
    float *const scores = work + thread * work_floats, *const dscores = scores + kMaxRows * kTile;
    float *const rows_q = dscores + kMaxRows * kTile, *const rows_do = rows_q + kMaxRows * width,
                 *const rows_dq = rows_do + kMaxRows * width;
    alignas(64) float rows_lse[kMaxRows], rows_delta[kMaxRows];
    float* const out_dk = data(dk) + base * dk->stride[0] + h * dk->stride[1];
    float* const out_dv = data(dv) + base * dv->stride[0] + h * dv->stride[1];
    for (int64_t t = key0; t < key1; t++)
      for (int64_t d = 0; d < depth; d += 16) {
        store_part(out_dk + t * dk->stride[0] + d, zero(), depth - d);
        store_part(out_dv + t * dv->stride[0] + d, zero(), depth - d);
      }
    // Blocks of queries that see this stripe: from the one of its first key on; under a window with long gaps between.
    for (int64_t t0 = key0 / together * together; t0 < length; t0 += together) {
      const int64_t low = lowest(t0, view);
      if (key0 >= view.prefix && low >= key1) break;  // nor does any later block see it
      const int64_t t1 = least(t0 + together, length), rows = (t1 - t0) * group, block = t0 / together;
      int64_t before = -1;  // the stripe whose keys come next before ours among those that the block sees
      if (key0 > low)
        before = stripe - 1;
      else if (view.prefix > 0 && key0 > 0)
        before = first_stripe + (least(view.prefix, key0) - 1) / width_keys;
      if (before >= 0) wait_for(stripes.progress + before * kv_heads + h, block);
      for (int64_t r = 0; r < rows; r++) {
        const int64_t t = base + t0 + r / group, head = h * group + r % group;
        const float* from_q = data(q) + t * q->stride[0] + head * q->stride[1];
        const float* from_do = data(dout) + t * dout->stride[0] + head * dout->stride[1];
        for (int64_t d = 0; d < depth; d += 16) {
          store(rows_q + r * width + d, load_part(from_q + d, depth - d));
          store(rows_do + r * width + d, load_part(from_do + d, depth - d));
          store(rows_dq + r * width + d,
                before < 0 ? zero() : load_part(data(dq) + t * dq->stride[0] + head * dq->stride[1] + d, depth - d));
        }
        rows_lse[r] = lse[t * heads + head];
        rows_delta[r] = delta[t * heads + head];
      }
      const int64_t key_end = least(t1, key1);
      for (int64_t j0 = tile_next(t0, key0, view); j0 < key_end; j0 = tile_next(t0, j0 + kTile, view)) {
        const int64_t key_tile = ((s.first_tile[segment] + j0 / kTile) * kv_heads + h) * depth * kTile;
        const int64_t begin = tile_begin(t0, j0, view), end = tile_end(t1, j0), key = j0 + begin;
        const int v0 = (int)(begin / 16), v1 = (int)((end + 15) / 16), lane0 = 16 * v0, lanes = 16 * (v1 - v0);
        multiply_small(rows, lanes, depth, rows_q, width, 1, keys + key_tile + lane0, kTile, scores + lane0, kTile,
                       false);
        multiply_small(rows, lanes, depth, rows_do, width, 1, values + key_tile + lane0, kTile, dscores + lane0, kTile,
                       false);
        const bool full = tile_full(t0, t1, j0, view);
        const auto weigh = view.plain
                               ? (full ? weights_and_derivative<true, true> : weights_and_derivative<false, true>)
                               : (full ? weights_and_derivative<true, false> : weights_and_derivative<false, false>);
        weigh(scores, dscores, rows, group, t0, j0, full ? 0 : v0, full ? 4 : v1, rows_lse, rows_delta, view);
        multiply_small(end - begin, depth, rows, scores + begin, 1, kTile, rows_do, width, out_dv + key * dv->stride[0],
                       dv->stride[0], true);
        multiply_small(end - begin, depth, rows, dscores + begin, 1, kTile, rows_q, width, out_dk + key * dk->stride[0],
                       dk->stride[0], true);
        multiply_small(rows, depth, end - begin, dscores + begin, kTile, 1,
                       data(k) + (base + key) * k->stride[0] + h * k->stride[1], k->stride[0], rows_dq, width, true);
      }
      const v16 scale = set1(t1 <= key1 ? mask->scale : 1.0f);  // the last stripe that the block sees
      for (int64_t r = 0; r < rows; r++) {
        float* to = data(dq) + (base + t0 + r / group) * dq->stride[0] + (h * group + r % group) * dq->stride[1];
        for (int64_t d = 0; d < depth; d += 16)
          store_part(to + d, mul(load(rows_dq + r * width + d), scale), depth - d);
      }
      __atomic_store_n(stripes.progress + task, block + 1, __ATOMIC_RELEASE);
    }
    __atomic_store_n(stripes.progress + task, INT64_MAX, __ATOMIC_RELEASE);
    for (int64_t t = key0; t < key1; t++)
      for (int64_t d = 0; d < depth; d += 16) {
        float* to = out_dk + t * dk->stride[0] + d;
        store_part(to, mul(load_part(to, depth - d), set1(mask->scale)), depth - d);
      }
  });
  return SFX_OK;
}

}  // namespace

int32_t attention_backward(sfx_stream* stream, const sfx_tensor* dout, const sfx_tensor* q, const sfx_tensor* k,
                           const sfx_tensor* v, const float* sink, const sfx_tensor* out, const float* lse,
                           const int32_t* cu_seqlens, int64_t segments, const sfx_attention_mask* mask, sfx_tensor* dq,
                           sfx_tensor* dk, sfx_tensor* dv, float* dsink) {
  SFX_CHECK_STORAGE(dout, q, k, v, out, dq, dk, dv);
  const Operation op(stream);
  const auto read = [&](const sfx_tensor* t) { return widened(op, stream, t); };
  const auto written = [&](const sfx_tensor* t) { return stored_bf16(t) ? scratch_like(op, t) : *t; };
  const sfx_tensor wide_dout = read(dout), wide_q = read(q), wide_k = read(k), wide_v = read(v), wide_out = read(out);
  sfx_tensor wide_dq = written(dq), wide_dk = written(dk), wide_dv = written(dv);
  const int32_t status = backward_f32(stream, &wide_dout, &wide_q, &wide_k, &wide_v, sink, &wide_out, lse, cu_seqlens,
                                      segments, mask, &wide_dq, &wide_dk, &wide_dv, dsink);
  if (status != SFX_OK) return status;
  narrow_into(stream, &wide_dq, dq), narrow_into(stream, &wide_dk, dk), narrow_into(stream, &wide_dv, dv);
  return SFX_OK;
}

}  // namespace SFX_NS
