// Packed sink attention, forward. S = scale q k; O = sum_k exp(S - lse') v with lse' = log(sum exp S + exp sink);
// segments never mix. The window skips whole tiles: O(n * window) work. Memory beyond the outputs: the keys once more,
// transposed. Roofline: 4 D fmas a visible (query, key) pair; K^T tiles and values stay in L1 for a block of about 48
// rows.
#include "attention-segments.h"
#include "attention-storage.h"
#include "operators.h"

namespace SFX_NS {
namespace {

int32_t forward_f32(sfx_stream* stream, const sfx_tensor* q, const sfx_tensor* k, const sfx_tensor* v,
                    const float* sink, const int32_t* cu_seqlens, int64_t segments, const sfx_attention_mask* mask,
                    sfx_tensor* out, float* lse) {
  const int64_t heads = q->shape[1], kv_heads = k->shape[1], depth = q->shape[2];
  SFX_CHECK(kv_heads > 0 && heads % kv_heads == 0 && heads / kv_heads <= kMaxRows,
            "attention: query heads must be a multiple of key heads, at most 64 a group");
  SFX_CHECK(unit_last(q) && unit_last(k) && unit_last(v) && unit_last(out), "attention: heads must be contiguous in D");
  if (const char* problem = variant_problem(*mask)) return sfx::fail(SFX_BAD_ARGUMENT, problem);
  const Operation op(stream);
  const int64_t group = heads / kv_heads, width = padded(depth), together = positions_together(group, *mask);
  const int32_t function = sink ? sink_function(*mask) : SFX_SINK_SIGMOID;
  const float* const seed = function == SFX_SINK_SIGMOID ? sink : nullptr;
  const Segments s = cut_segments(op, cu_seqlens, segments);
  float* keys = op.floats(s.tiles * kv_heads * depth * kTile);
  uint8_t* finite = op.take<uint8_t>(s.tiles * kv_heads);
  transpose_tiles(stream, s, k, keys, nullptr);
  parallel(stream, s.tiles, [&](int64_t tile, int32_t) {
    const int64_t segment = s.tile_segment[tile], begin = s.cu[segment] + (tile - s.first_tile[segment]) * kTile;
    for (int64_t h = 0; h < kv_heads; h++) {
      v16 bad = zero();
      for (int64_t t = begin; t < least(begin + kTile, s.cu[segment + 1]); t++)
        for (int64_t d = 0; d < depth; d += 16)
          bad = fma(load_part(data(v) + t * v->stride[0] + h * v->stride[1] + d, depth - d), zero(), bad);
      finite[tile * kv_heads + h] = sum_lanes(bad) == 0.0f;
    }
  });
  // One task: one tile of query positions of one key head, all its query heads.
  const int64_t work_floats = kMaxRows * (kTile + 2 * width);
  float* const work = op.floats(team_size(stream) * work_floats);
  parallel(stream, s.tiles * kv_heads, [&](int64_t task, int32_t thread) {
    const int64_t tile = task / kv_heads, h = task % kv_heads, segment = s.tile_segment[tile];
    const int64_t base = s.cu[segment], length = s.cu[segment + 1] - base, q0 = (tile - s.first_tile[segment]) * kTile;
    const int64_t q_end = least(q0 + kTile, length);
    float *const scores = work + thread * work_floats, *const rows_q = scores + kMaxRows * kTile,
                 *const rows_o = rows_q + kMaxRows * width;
    const View view = view_of(*mask, base, h * group);
    SoftmaxRows soft;
    for (int64_t t0 = q0; t0 < q_end; t0 += together) {
      const int64_t t1 = least(t0 + together, q_end), rows = (t1 - t0) * group;
      for (int64_t r = 0; r < rows; r++) {
        const float* from = data(q) + (base + t0 + r / group) * q->stride[0] + (h * group + r % group) * q->stride[1];
        for (int64_t d = 0; d < depth; d += 16) store(rows_q + r * width + d, load_part(from + d, depth - d));
        for (int64_t d = 0; d < width; d += 16) store(rows_o + r * width + d, zero());
      }
      softmax_begin(&soft, rows, group, seed ? seed + h * group : nullptr);
      for (int64_t j0 = tile_next(t0, 0, view); j0 < t1; j0 = tile_next(t0, j0 + kTile, view)) {
        const int64_t key_tile = s.first_tile[segment] + j0 / kTile;
        const int64_t begin = tile_begin(t0, j0, view), end = tile_end(t1, j0);
        const int v0 = (int)(begin / 16), v1 = (int)((end + 15) / 16);
        multiply_small(rows, 16 * (v1 - v0), depth, rows_q, width, 1,
                       keys + (key_tile * kv_heads + h) * depth * kTile + 16 * v0, kTile, scores + 16 * v0, kTile,
                       false);
        if (tile_full(t0, t1, j0, view))
          softmax_tile<true>(&soft, scores, rows, group, t0, j0, 0, 4, view);
        else
          softmax_tile<false>(&soft, scores, rows, group, t0, j0, v0, v1, view);
        rescale_rows(&soft, rows_o, rows, width);
        weigh_values(scores, rows, begin, end, data(v) + (base + j0) * v->stride[0] + h * v->stride[1], v->stride[0],
                     depth, finite[key_tile * kv_heads + h] != 0, rows_o, width);
      }
      softmax_end(&soft, rows);
      if (sink && !seed) scale_by_sink(&soft, rows, group, function, sink + h * group);
      for (int64_t r = 0; r < rows; r++) {
        const int64_t t = base + t0 + r / group, head = h * group + r % group;
        float* to = data(out) + t * out->stride[0] + head * out->stride[1];
        const v16 inverse = set1(soft.alpha[r]);
        for (int64_t d = 0; d < depth; d += 16)
          store_part(to + d, mul(load(rows_o + r * width + d), inverse), depth - d);
        if (lse) lse[t * heads + head] = soft.sum[r];
      }
    }
  });
  return SFX_OK;
}

}  // namespace

int32_t attention_forward(sfx_stream* stream, const sfx_tensor* q, const sfx_tensor* k, const sfx_tensor* v,
                          const float* sink, const int32_t* cu_seqlens, int64_t segments,
                          const sfx_attention_mask* mask, sfx_tensor* out, float* lse) {
  if (is_f32(q) && is_f32(k) && is_f32(v) && is_f32(out))
    return forward_f32(stream, q, k, v, sink, cu_seqlens, segments, mask, out, lse);
  SFX_CHECK_STORAGE(q, k, v, out);
  const Operation op(stream);
  const sfx_tensor wide_q = widened(op, stream, q), wide_k = widened(op, stream, k), wide_v = widened(op, stream, v);
  sfx_tensor wide_out = stored_bf16(out) ? scratch_like(op, out) : *out;
  const int32_t status =
      forward_f32(stream, &wide_q, &wide_k, &wide_v, sink, cu_seqlens, segments, mask, &wide_out, lse);
  if (status == SFX_OK) narrow_into(stream, &wide_out, out);
  return status;
}

}  // namespace SFX_NS
