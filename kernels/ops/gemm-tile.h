// The register tile that matrix products are made of: MR rows of A, broadcast from where they lie, times NV vectors of
// B, which stay in registers while k runs.
#ifndef SINKFLEX_OPS_GEMM_TILE_H
#define SINKFLEX_OPS_GEMM_TILE_H

#include "gemm.h"

namespace SFX_NS {

#if defined(SFX_ISA_AVX512)
constexpr int kRows = 12, kWide = 2;
#elif defined(SFX_ISA_AVX2)
constexpr int kRows = 6, kWide = 1;
#elif defined(SFX_ISA_NEON)
constexpr int kRows = 6, kWide = 1;
#else
constexpr int kRows = 4, kWide = 1;
#endif
constexpr int64_t kPanel = 16 * kWide;

struct Tile {
  int64_t k;
  const float* a;
  int64_t ai, ak;
  const float* b;
  int64_t bk;
  const float* from;  // chain start, or NULL for 0
  int64_t from_row;
  const float* bias;
  const float* old;  // added last
  int64_t old_row;
  float* c;
  int64_t ci;
  int64_t tail;                  // lanes of the last vector, 1..16
  const float* ahead = nullptr;  // where a stream of A goes on after this tile: fetched while k runs
};

using TileFunction = void (*)(const Tile&);
// The tile of `rows` (1..kRows) times `vectors` (1 or kWide); masked: the last vector of B may only be read for `tail`
// lanes.
TileFunction pick_tile(int64_t rows, int64_t vectors, bool masked);
// The same, unmasked, for a tile with `ahead`.
TileFunction pick_streaming_tile(int64_t rows, int64_t vectors);

// Rows of the next tile: tiles as even as possible, so that 64 rows are 11+11+11+11+10+10 and not 12*5+4.
SFX_INLINE int64_t rows_next(int64_t left) {
  const int64_t tiles = (left + kRows - 1) / kRows;
  return (left + tiles - 1) / tiles;
}

}  // namespace SFX_NS
#endif
