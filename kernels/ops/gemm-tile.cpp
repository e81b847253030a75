// The register tiles, one function a shape.
#include "gemm-tile.h"

namespace SFX_NS {
namespace {

template <int MR, int NV, bool Masked, bool Ahead = false>
void tile(const Tile& t) {
  v16 acc[MR][NV];
#pragma GCC unroll 16
  for (int i = 0; i < MR; i++)
#pragma GCC unroll 4
    for (int v = 0; v < NV; v++) {
      if (!t.from)
        acc[i][v] = zero();
      else
        acc[i][v] = load_part(t.from + i * t.from_row + 16 * v, v == NV - 1 ? t.tail : 16);
    }
  // Four rows share a base pointer: x86 addresses them as p, p+s, p+2s, p+3s.
  const float *p0 = t.a, *p1 = t.a + 4 * t.ai, *p2 = t.a + 8 * t.ai, *b = t.b, *ahead = t.ahead;
  const int64_t s1 = t.ai, s2 = 2 * t.ai, s3 = 3 * t.ai, step = t.ak, bstep = t.bk, tail = t.tail;
  int64_t unfetched = 0;  // floats of A that the steps so far took, less those fetched
  for (int64_t p = t.k; p > 0; p--) {
    v16 w[NV];
#pragma GCC unroll 4
    for (int v = 0; v < NV; v++) w[v] = Masked && v == NV - 1 ? load_part(b + 16 * v, tail) : load(b + 16 * v);
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++) {
      const float* q = i < 4 ? p0 : i < 8 ? p1 : p2;
      const v16 x = set1(i % 4 == 0 ? q[0] : i % 4 == 1 ? q[s1] : i % 4 == 2 ? q[s2] : q[s3]);
#pragma GCC unroll 4
      for (int v = 0; v < NV; v++) acc[i][v] = fma(x, w[v], acc[i][v]);
    }
    if (Ahead && (unfetched += MR) > 0) {  // once a line: fetching one again holds up what else is on its way
      __builtin_prefetch(ahead, 0, NV == 1 ? 2 : 3);  // a step of one vector is too short for the first-level cache
      ahead += 16;
      unfetched -= 16;
    }
    b += bstep;
    p0 += step;
    if (MR > 4) p1 += step;
    if (MR > 8) p2 += step;
  }
#pragma GCC unroll 4
  for (int v = 0; v < NV; v++) {
    const int64_t lanes = v == NV - 1 ? tail : 16;
    if (t.bias) {
      const v16 w = load_part(t.bias + 16 * v, lanes);
#pragma GCC unroll 16
      for (int i = 0; i < MR; i++) acc[i][v] = add(acc[i][v], w);
    }
    if (t.old)
#pragma GCC unroll 16
      for (int i = 0; i < MR; i++) acc[i][v] = add(acc[i][v], load_part(t.old + i * t.old_row + 16 * v, lanes));
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++) store_part(t.c + i * t.ci + 16 * v, acc[i][v], lanes);
  }
}

template <int NV, bool Masked, bool Ahead = false>
TileFunction pick_rows(int64_t rows) {
  switch (rows) {
    case 1:
      return tile<1, NV, Masked, Ahead>;
    case 2:
      return tile<2, NV, Masked, Ahead>;
    case 3:
      return tile<3, NV, Masked, Ahead>;
    case 4:
      return tile<4, NV, Masked, Ahead>;
#if !defined(SFX_ISA_PORTABLE)
    case 5:
      return tile<5, NV, Masked, Ahead>;
    case 6:
      return tile<6, NV, Masked, Ahead>;
#endif
#if defined(SFX_ISA_AVX512)
    case 7:
      return tile<7, NV, Masked, Ahead>;
    case 8:
      return tile<8, NV, Masked, Ahead>;
    case 9:
      return tile<9, NV, Masked, Ahead>;
    case 10:
      return tile<10, NV, Masked, Ahead>;
    case 11:
      return tile<11, NV, Masked, Ahead>;
    case 12:
      return tile<12, NV, Masked, Ahead>;
#endif
    default:
      return nullptr;
  }
}
}  // namespace

TileFunction pick_streaming_tile(int64_t rows, int64_t vectors) {
  return vectors == 1 ? pick_rows<1, false, true>(rows) : pick_rows<kWide, false, true>(rows);
}

TileFunction pick_tile(int64_t rows, int64_t vectors, bool masked) {
  if (vectors == 1) return masked ? pick_rows<1, true>(rows) : pick_rows<1, false>(rows);
  return masked ? pick_rows<kWide, true>(rows) : pick_rows<kWide, false>(rows);
}

}  // namespace SFX_NS
