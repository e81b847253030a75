// Packed sink attention, backward, without any n x n array. With P = exp(scale q k - lse), delta = rowsum(dO O):
// dV = P^T dO; dP = dO V^T; dS = P (dP - delta); dQ = scale dS K; dK = scale dS^T Q; dsink_h = -sum_rows exp(sink_h -
// lse) delta. One task is one key head of one segment: queries ascend, so every chain over queries (dK, dV) and over
// keys (dQ) ascends and nothing is shared between tasks. The gradients of a key head sum over its query heads, position
// by position.
#include "attention-segments.h"
#include "operators.h"

namespace SFX_NS {
namespace {

// P and dS of one tile, in place over the scores and dP: vectors [v0, v1).
template <bool Whole>
void weights_and_derivative(float* scores, float* dscores, int64_t rows, int64_t group, int64_t t0, int64_t j0, int v0,
                            int v1, const float* lse, const float* delta, const sfx_attention_mask& mask) {
  const v16 scale = set1(mask.scale);
  for (int64_t r = 0; r < rows; r++) {
    float *row = scores + r * kTile, *drow = dscores + r * kTile;
    const v16 from = set1(lse[r]), centre = set1(delta[r]);
    const Visible see = Whole ? Visible{} : visible(t0 + r / group, j0, mask);
    for (int v = v0; v < v1; v++) {
      v16 x = mul(load(row + 16 * v), scale);
      if (!Whole) x = mask_scores(x, v, see);
      const v16 p = exp_down(sub(x, from));  // a score never exceeds its row's lse by more than rounding
      v16 d = mul(p, sub(load(drow + 16 * v), centre));
      if (!Whole) d = select(equal(x, set1(-SFX_INFINITY)), zero(), d);
      store(row + 16 * v, p);
      store(drow + 16 * v, d);
    }
  }
}

}  // namespace

int32_t attention_backward(sfx_stream* stream, const sfx_tensor* dout, const sfx_tensor* q, const sfx_tensor* k,
                           const sfx_tensor* v, const float* sink, const sfx_tensor* out, const float* lse,
                           const int32_t* cu_seqlens, int64_t segments, const sfx_attention_mask* mask, sfx_tensor* dq,
                           sfx_tensor* dk, sfx_tensor* dv, float* dsink) {
  SFX_CHECK_F32(dout, q, k, v, out, dq, dk, dv);
  const int64_t heads = q->shape[1], kv_heads = k->shape[1], depth = q->shape[2], n = q->shape[0];
  SFX_CHECK(kv_heads > 0 && heads % kv_heads == 0 && heads / kv_heads <= kMaxRows,
            "attention: query heads must be a multiple of key heads, at most 64 a group");
  SFX_CHECK(unit_last(q) && unit_last(k) && unit_last(v) && unit_last(out) && unit_last(dout) && unit_last(dq) &&
                unit_last(dk) && unit_last(dv),
            "attention: heads must be contiguous in D");
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
  if (dsink && sink)
    for (int64_t h = 0; h < heads; h += 16) {
      const v16 logit = load_part(sink + h, heads - h);
      v16 sum = load_part(dsink + h, heads - h);
      for (int64_t i = 0; i < segments; i++)
        for (int64_t t = cu_seqlens[i]; t < cu_seqlens[i + 1]; t++) {
          const v16 total = load_part(lse + t * heads + h, heads - h);
          v16 p = exp(sub(logit, total));
          p = select(equal(logit, total), set1(1.0f), p);
          p = select(equal(logit, set1(-SFX_INFINITY)), zero(), p);
          sum = fma(negate(p), load_part(delta + t * heads + h, heads - h), sum);
        }
      store_part(dsink + h, sum, heads - h);
    }
  const int64_t work_floats = kMaxRows * (2 * kTile + 3 * width);
  float* const work = op.floats(team_size(stream) * work_floats);
  parallel(stream, segments * kv_heads, [&](int64_t task, int32_t thread) {
    const int64_t segment = task / kv_heads, h = task % kv_heads, base = s.cu[segment],
                  length = s.cu[segment + 1] - base;
    float *const scores = work + thread * work_floats, *const dscores = scores + kMaxRows * kTile;
    float *const rows_q = dscores + kMaxRows * kTile, *const rows_do = rows_q + kMaxRows * width,
                 *const rows_dq = rows_do + kMaxRows * width;
    alignas(64) float rows_lse[kMaxRows], rows_delta[kMaxRows];
    float* const out_dk = data(dk) + base * dk->stride[0] + h * dk->stride[1];
    float* const out_dv = data(dv) + base * dv->stride[0] + h * dv->stride[1];
    for (int64_t t = 0; t < length; t++)
      for (int64_t d = 0; d < depth; d += 16) {
        store_part(out_dk + t * dk->stride[0] + d, zero(), depth - d);
        store_part(out_dv + t * dv->stride[0] + d, zero(), depth - d);
      }
    for (int64_t t0 = 0; t0 < length; t0 += together) {
      const int64_t t1 = least(t0 + together, length), rows = (t1 - t0) * group;
      for (int64_t r = 0; r < rows; r++) {
        const int64_t t = base + t0 + r / group, head = h * group + r % group;
        const float* from_q = data(q) + t * q->stride[0] + head * q->stride[1];
        const float* from_do = data(dout) + t * dout->stride[0] + head * dout->stride[1];
        for (int64_t d = 0; d < depth; d += 16) {
          store(rows_q + r * width + d, load_part(from_q + d, depth - d));
          store(rows_do + r * width + d, load_part(from_do + d, depth - d));
          store(rows_dq + r * width + d, zero());
        }
        rows_lse[r] = lse[t * heads + head];
        rows_delta[r] = delta[t * heads + head];
      }
      for (int64_t j0 = 0; j0 < t1; j0 += kTile) {
        if (!tile_visible(t0, t1, j0, *mask)) continue;
        const int64_t key_tile = ((s.first_tile[segment] + j0 / kTile) * kv_heads + h) * depth * kTile;
        const int64_t begin = tile_begin(t0, j0, *mask), end = tile_end(t1, j0), key = j0 + begin;
        const int v0 = (int)(begin / 16), v1 = (int)((end + 15) / 16), lane0 = 16 * v0, lanes = 16 * (v1 - v0);
        multiply_small(rows, lanes, depth, rows_q, width, 1, keys + key_tile + lane0, kTile, scores + lane0, kTile,
                       false);
        multiply_small(rows, lanes, depth, rows_do, width, 1, values + key_tile + lane0, kTile, dscores + lane0, kTile,
                       false);
        if (tile_full(t0, t1, j0, *mask))
          weights_and_derivative<true>(scores, dscores, rows, group, t0, j0, 0, 4, rows_lse, rows_delta, *mask);
        else
          weights_and_derivative<false>(scores, dscores, rows, group, t0, j0, v0, v1, rows_lse, rows_delta, *mask);
        multiply_small(end - begin, depth, rows, scores + begin, 1, kTile, rows_do, width, out_dv + key * dv->stride[0],
                       dv->stride[0], true);
        multiply_small(end - begin, depth, rows, dscores + begin, 1, kTile, rows_q, width, out_dk + key * dk->stride[0],
                       dk->stride[0], true);
        multiply_small(rows, depth, end - begin, dscores + begin, kTile, 1,
                       data(k) + (base + key) * k->stride[0] + h * k->stride[1], k->stride[0], rows_dq, width, true);
      }
      const v16 scale = set1(mask->scale);
      for (int64_t r = 0; r < rows; r++) {
        float* to = data(dq) + (base + t0 + r / group) * dq->stride[0] + (h * group + r % group) * dq->stride[1];
        for (int64_t d = 0; d < depth; d += 16)
          store_part(to + d, mul(load(rows_dq + r * width + d), scale), depth - d);
      }
    }
    for (int64_t t = 0; t < length; t++)
      for (int64_t d = 0; d < depth; d += 16) {
        float* to = out_dk + t * dk->stride[0] + d;
        store_part(to, mul(load_part(to, depth - d), set1(mask->scale)), depth - d);
      }
  });
  return SFX_OK;
}

}  // namespace SFX_NS
