// Attention over a paged cache: the rows of a decode step or of a prompt chunk attend their own sequence up to their
// own position. Same tiles, same order, same functions as the packed forward: the same bits. Lanes of a page that
// nothing was written to may hold anything (they are masked as scores and never read as values).
#include "attention-tile.h"
#include "operators.h"

namespace SFX_NS {

int32_t kv_write(sfx_stream* stream, const sfx_tensor* k, const sfx_tensor* v, const sfx_paged* paged) {
  SFX_CHECK_F32(k, v);
  SFX_CHECK(unit_last(k) && unit_last(v), "kv_write: heads must be contiguous in D");
  SFX_CHECK(paged->page_tokens >= 16 && kTile % paged->page_tokens == 0, "kv_write: page_tokens must be 16, 32 or 64");
  const Operation op(stream);
  const int64_t heads = k->shape[1], depth = k->shape[2], tokens = paged->page_tokens;
  float *const keys = static_cast<float*>(paged->keys), *const values = static_cast<float*>(paged->values);
  // Every element of a key goes to a cache line of its own, which is seldom in cache.
  parallel_ranges(stream, paged->rows, 1, (double)paged->rows * heads * depth * 10, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++) {
      const int64_t t = paged->position[r],
                    page = paged->page_table[paged->sequence[r] * paged->max_pages + t / tokens];
      for (int64_t h = 0; h < heads; h++) {
        const float *from_k = data(k) + r * k->stride[0] + h * k->stride[1],
                    *from_v = data(v) + r * v->stride[0] + h * v->stride[1];
        float* to_k = keys + (page * heads + h) * depth * tokens + t % tokens;
        float* to_v = values + ((page * heads + h) * tokens + t % tokens) * depth;
        for (int64_t d = 0; d < depth; d++) to_k[d * tokens] = from_k[d], to_v[d] = from_v[d];
      }
    }
  });
  return SFX_OK;
}

int32_t attention_paged(sfx_stream* stream, const sfx_tensor* q, const float* sink, const sfx_paged* paged,
                        const sfx_attention_mask* mask, sfx_tensor* out) {
  SFX_CHECK_F32(q, out);
  const int64_t heads = q->shape[1], kv_heads = paged->kv_heads, depth = q->shape[2], tokens = paged->page_tokens;
  SFX_CHECK(kv_heads > 0, "attention_paged: paged.kv_heads is not set");
  SFX_CHECK(heads % kv_heads == 0 && heads / kv_heads <= kMaxRows,
            "attention: query heads must be a multiple of key heads, at most 64 a group");
  SFX_CHECK(tokens >= 16 && kTile % tokens == 0, "attention: page_tokens must be 16, 32 or 64");
  SFX_CHECK(unit_last(q) && unit_last(out), "attention: heads must be contiguous in D");
  SFX_CHECK(!mask->variant || (!mask->variant->document_start && sink_function(*mask) == SFX_SINK_SIGMOID),
            "attention_paged: documents and other sink functions are for packed sequences");
  const Operation op(stream);
  const int64_t group = heads / kv_heads, width = padded(depth), together = positions_together(group, *mask);
  const float *const keys = static_cast<const float*>(paged->keys), *const values =
                                                                        static_cast<const float*>(paged->values);
  // Runs of consecutive positions of one sequence, cut into blocks.
  int64_t *first = op.take<int64_t>(paged->rows + 1), blocks = 0;
  double work = 0;
  for (int64_t r = 0; r < paged->rows; r++) {
    const bool follows =
        r > 0 && paged->sequence[r] == paged->sequence[r - 1] && paged->position[r] == paged->position[r - 1] + 1;
    if (!follows || r - first[blocks - 1] >= together) first[blocks++] = r;
    work += (double)heads * depth *
            (mask->window < 0 ? paged->position[r] : least(paged->position[r], mask->window + kTile)) / 8;
  }
  first[blocks] = paged->rows;
  const int64_t scratch_floats = kMaxRows * (kTile + 2 * width);
  float* const scratch = op.floats(team_size(stream) * scratch_floats);
  const auto block = [&](int64_t task, int32_t thread) {
    const int64_t b = task / kv_heads, h = task % kv_heads, row0 = first[b], positions = first[b + 1] - row0,
                  rows = positions * group;
    const int64_t t0 = paged->position[row0], t1 = t0 + positions;
    const int32_t* pages = paged->page_table + paged->sequence[row0] * paged->max_pages;
    float *const scores = scratch + thread * scratch_floats, *const rows_q = scores + kMaxRows * kTile,
                 *const rows_o = rows_q + kMaxRows * width;
    const View view = view_of(*mask, 0, h * group);
    SoftmaxRows soft;
    for (int64_t r = 0; r < rows; r++) {
      const float* from = data(q) + (row0 + r / group) * q->stride[0] + (h * group + r % group) * q->stride[1];
      for (int64_t d = 0; d < depth; d += 16) store(rows_q + r * width + d, load_part(from + d, depth - d));
      for (int64_t d = 0; d < width; d += 16) store(rows_o + r * width + d, zero());
    }
    softmax_begin(&soft, rows, group, sink ? sink + h * group : nullptr);
    for (int64_t j0 = tile_next(t0, 0, view); j0 < t1; j0 = tile_next(t0, j0 + kTile, view)) {
      const int64_t begin = tile_begin(t0, j0, view), end = tile_end(t1, j0);
      const int64_t lane0 = begin / 16 * 16, lane1 = (end + 15) / 16 * 16;
      for (int64_t part = lane0 / tokens * tokens; part < lane1; part += tokens) {
        const int64_t from = most(lane0 - part, 0), to = least(lane1 - part, tokens),
                      page = pages[(j0 + part) / tokens];
        multiply_small(rows, to - from, depth, rows_q, width, 1, keys + (page * kv_heads + h) * depth * tokens + from,
                       tokens, scores + part + from, kTile, false);
      }
      if (tile_full(t0, t1, j0, view))
        softmax_tile<true>(&soft, scores, rows, group, t0, j0, 0, 4, view);
      else
        softmax_tile<false>(&soft, scores, rows, group, t0, j0, (int)(lane0 / 16), (int)(lane1 / 16), view);
      rescale_rows(&soft, rows_o, rows, width);
      for (int64_t part = begin / tokens * tokens; part < end; part += tokens) {
        const int64_t from = most(begin - part, 0), to = least(end - part, tokens), page = pages[(j0 + part) / tokens];
        weigh_values(scores + part, rows, from, to, values + (page * kv_heads + h) * tokens * depth, depth, depth, true,
                     rows_o, width);
      }
    }
    softmax_end(&soft, rows);
    for (int64_t r = 0; r < rows; r++) {
      float* to = data(out) + (row0 + r / group) * out->stride[0] + (h * group + r % group) * out->stride[1];
      const v16 inverse = set1(soft.alpha[r]);
      for (int64_t d = 0; d < depth; d += 16) store_part(to + d, mul(load(rows_o + r * width + d), inverse), depth - d);
    }
  };
  if (work < 20e3)
    for (int64_t task = 0; task < blocks * kv_heads; task++) block(task, 0);
  else
    parallel(stream, blocks * kv_heads, block);
  return SFX_OK;
}

}  // namespace SFX_NS
