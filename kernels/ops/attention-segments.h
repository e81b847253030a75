// Cuts packed sequences into tasks: blocks of query positions, and transposed key tiles [D][64] that scores vectorise
// over.
#ifndef SINKFLEX_OPS_ATTENTION_SEGMENTS_H
#define SINKFLEX_OPS_ATTENTION_SEGMENTS_H

#include "attention-tile.h"

namespace SFX_NS {

struct Segments {
  int64_t count, tiles;   // tiles over all segments
  const int32_t* cu;      // [count + 1]
  int64_t* first_tile;    // [count + 1]
  int32_t* tile_segment;  // [tiles]
};

SFX_INLINE Segments cut_segments(const Scratch& scratch, const int32_t* cu, int64_t count) {
  Segments s = {count, 0, cu, scratch.take<int64_t>(count + 1), nullptr};
  for (int64_t i = 0; i < count; i++) {
    s.first_tile[i] = s.tiles;
    s.tiles += (cu[i + 1] - cu[i] + kTile - 1) / kTile;
  }
  s.first_tile[count] = s.tiles;
  s.tile_segment = scratch.take<int32_t>(s.tiles);
  for (int64_t i = 0; i < count; i++)
    for (int64_t t = s.first_tile[i]; t < s.first_tile[i + 1]; t++) s.tile_segment[t] = (int32_t)i;
  return s;
}

// to[tile][head][D][64] from x[n, heads, D]; keys past the segment's end are zero. finite[tile][head] (or NULL): no
// infinity or NaN in it.
[[maybe_unused]] static void transpose_tiles(sfx_stream* stream, const Segments& s, const sfx_tensor* x, float* to,
                                             uint8_t* finite) {
  const int64_t heads = x->shape[1], depth = x->shape[2];
  parallel(stream, s.tiles, [&](int64_t tile, int32_t) {
    const int64_t segment = s.tile_segment[tile], j0 = (tile - s.first_tile[segment]) * kTile;
    const int64_t begin = s.cu[segment] + j0, keys = least(kTile, s.cu[segment + 1] - begin);
    for (int64_t h = 0; h < heads; h++) {
      const float* from = data(x) + begin * x->stride[0] + h * x->stride[1];
      float* out = to + (tile * heads + h) * depth * kTile;
      v16 bad = zero();
      for (int64_t j = 0; j < kTile; j += 16) {
        const int64_t fast = keys - j >= 16 ? depth / 16 * 16 : 0;
        for (int64_t d = 0; d < fast; d += 16)
          transpose16(from + j * x->stride[0] + d, x->stride[0], out + d * kTile + j, kTile);
        for (int64_t d = fast; d < depth; d++)
          for (int64_t i = 0; i < 16; i++)
            out[d * kTile + j + i] = j + i < keys ? from[(j + i) * x->stride[0] + d] : 0.0f;
      }
      if (!finite) continue;
      for (int64_t i = 0; i < depth * kTile; i += 16) bad = fma(load(out + i), zero(), bad);
      finite[tile * heads + h] = sum_lanes(bad) == 0.0f;
    }
  });
}

}  // namespace SFX_NS
#endif
