// Register-tiled matrix products. A tile of kRows x kWide*16 outputs stays in registers while k runs; A is broadcast
// from where it lies, B comes from panels packed inside the call (transposed on the way for [out,in] weights), or
// directly when that is cheaper. Roofline: one fma an element pair; a tile step loads kWide vectors and kRows scalars
// for kRows*kWide fmas.
#include "gemm.h"

#include "operation.h"

namespace SFX_NS {
namespace {

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
constexpr int64_t kPackFloats = 64 * 1024;  // the packed block of B: 256 KiB, half of a small L2
constexpr int64_t kDepth = 512;             // longest block of k
constexpr int64_t kCopied = 48;             // rows of A copied at once where its columns lie far apart
static_assert(kPackFloats + kCopied * kDepth + 16 <= kProductScratch, "both packed blocks fit in a product's scratch");

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
  int64_t tail;  // lanes of the last vector, 1..16
};

template <int MR, int NV, bool Masked>
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
  const float *p0 = t.a, *p1 = t.a + 4 * t.ai, *p2 = t.a + 8 * t.ai, *b = t.b;
  const int64_t s1 = t.ai, s2 = 2 * t.ai, s3 = 3 * t.ai, step = t.ak, bstep = t.bk, tail = t.tail;
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

using TileFunction = void (*)(const Tile&);
template <int NV, bool Masked>
TileFunction pick_rows(int64_t rows) {
  switch (rows) {
    case 1:
      return tile<1, NV, Masked>;
    case 2:
      return tile<2, NV, Masked>;
    case 3:
      return tile<3, NV, Masked>;
    case 4:
      return tile<4, NV, Masked>;
#if !defined(SFX_ISA_PORTABLE)
    case 5:
      return tile<5, NV, Masked>;
    case 6:
      return tile<6, NV, Masked>;
#endif
#if defined(SFX_ISA_AVX512)
    case 7:
      return tile<7, NV, Masked>;
    case 8:
      return tile<8, NV, Masked>;
    case 9:
      return tile<9, NV, Masked>;
    case 10:
      return tile<10, NV, Masked>;
    case 11:
      return tile<11, NV, Masked>;
    case 12:
      return tile<12, NV, Masked>;
#endif
    default:
      return nullptr;
  }
}
TileFunction pick_tile(int64_t rows, int64_t vectors, bool masked) {
  if (vectors == 1) return masked ? pick_rows<1, true>(rows) : pick_rows<1, false>(rows);
  return masked ? pick_rows<kWide, true>(rows) : pick_rows<kWide, false>(rows);
}

// Rows of the next tile: tiles as even as possible, so that 64 rows are 11+11+11+11+10+10 and not 12*5+4.
int64_t rows_next(int64_t left) {
  const int64_t tiles = (left + kRows - 1) / kRows;
  return (left + tiles - 1) / tiles;
}

// One panel of packed B: to[p][kPanel], columns beyond `columns` zero.
void pack_panel(const float* b, int64_t bk, int64_t bj, int64_t k, int64_t columns, float* to) {
  if (bj == 1) {
    for (int64_t p = 0; p < k; p++)
      for (int64_t v = 0; v < kPanel; v += 16)
        store(to + p * kPanel + v, columns > v ? load_part(b + p * bk + v, columns - v) : zero());
    return;
  }
  for (int64_t j = 0; j < kPanel; j += 16) {
    const bool whole = bk == 1 && columns - j >= 16;
    const int64_t fast = whole ? k / 16 * 16 : 0, width = columns - j < 16 ? columns - j : 16;
    for (int64_t p = 0; p < fast; p += 16) transpose16(b + j * bj + p, bj, to + p * kPanel + j, kPanel);
    for (int64_t p = fast; p < k; p++)
      for (int64_t i = 0; i < 16; i++) to[p * kPanel + j + i] = i < width ? b[p * bk + (j + i) * bj] : 0.0f;
  }
}

// A whose columns lie far apart (gradients of weights: A = dy^T) is copied for kCopied rows at once, tile after tile
// to[p][rows of the tile], or every step of k would touch another page for a single tile. `to` has 16 floats of slack.
void copy_rows(const float* a, int64_t ak, int64_t k, int64_t rows, float* to) {
  int64_t first[kCopied], count[kCopied], tiles = 0;
  for (int64_t i = 0; i < rows; tiles++) first[tiles] = i, count[tiles] = rows_next(rows - i), i += count[tiles];
  for (int64_t p = 0; p < k; p++)
    for (int64_t t = 0; t < tiles; t++)
      store_n(to + first[t] * k + p * count[t], load_n(a + p * ak + first[t], (int)count[t]), (int)count[t]);
}

// One product on the calling thread with `pack` scratch of kProductScratch, and `held` for partial chains when an old C
// is added last.
constexpr int64_t kHeldRows = 96, kHeldColumns = 1024;
void multiply_serial(const Product& g, float* pack, float* held) {
  const bool hold = g.add && g.k > kDepth;
  const int64_t depth = g.k < kDepth ? (g.k > 0 ? g.k : 1) : kDepth;
  const int64_t columns = kPackFloats / depth / kPanel * kPanel;
  const int64_t column_block = hold && columns > kHeldColumns ? kHeldColumns : columns;
  const int64_t row_block = hold ? kHeldRows : g.m;
  const bool direct = g.bj == 1 && (g.m <= 2 * kRows || g.bk <= 64);
  const bool copy_a = g.ai == 1 && g.ak >= 256 && g.n > 2 * kPanel;
  float* const packed_a = pack + kPackFloats;
  for (int64_t i0 = 0; i0 < g.m; i0 += row_block) {
    const int64_t i1 = i0 + row_block < g.m ? i0 + row_block : g.m;
    for (int64_t j0 = 0; j0 < g.n; j0 += column_block) {
      const int64_t j1 = j0 + column_block < g.n ? j0 + column_block : g.n;
      for (int64_t p0 = 0; p0 < g.k || p0 == 0; p0 += depth) {
        const int64_t kk = p0 + depth < g.k ? depth : g.k - p0;
        const bool first = p0 == 0, last = p0 + kk >= g.k;
        if (!direct)
          for (int64_t j = j0; j < j1; j += kPanel)
            pack_panel(g.b + p0 * g.bk + j * g.bj, g.bk, g.bj, kk, j1 - j < kPanel ? j1 - j : kPanel,
                       pack + (j - j0) * kk);
        for (int64_t i = i0, copied = i0; i < i1;) {
          const float* a = g.a + i * g.ai + p0 * g.ak;
          int64_t rows = rows_next(i1 - i);
          if (copy_a) {
            if (i >= copied + kCopied || i == i0) {
              copied = i;
              copy_rows(a, g.ak, kk, i1 - i < kCopied ? i1 - i : kCopied, packed_a);
            }
            const int64_t end = i1 < copied + kCopied ? i1 : copied + kCopied;
            rows = rows_next(end - i);
            a = packed_a + (i - copied) * kk;
          }
          for (int64_t j = j0; j < j1; j += kPanel) {
            const int64_t width = j1 - j < kPanel ? j1 - j : kPanel, vectors = (width + 15) / 16;
            Tile t;
            t.k = kk;
            t.a = a, t.ai = g.ai, t.ak = copy_a ? rows : g.ak;
            t.b = direct ? g.b + p0 * g.bk + j : pack + (j - j0) * kk, t.bk = direct ? g.bk : kPanel;
            float *c = g.c + i * g.ci + j, *keep = hold ? held + (i - i0) * kHeldColumns + (j - j0) : c;
            const int64_t keep_row = hold ? kHeldColumns : g.ci;
            t.from = first ? (g.chain ? c : nullptr) : keep, t.from_row = first ? g.ci : keep_row;
            t.bias = last && g.bias ? g.bias + j : nullptr;
            t.old = last && g.add ? c : nullptr, t.old_row = g.ci;
            t.c = last ? c : keep, t.ci = last ? g.ci : keep_row;
            t.tail = width - 16 * (vectors - 1);
            pick_tile(rows, vectors, direct && t.tail < 16)(t);
          }
          i += rows;
        }
        if (last) break;
      }
    }
  }
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

void multiply(sfx_stream* stream, const Product* products, int64_t count) {
  const Scratch scratch(stream);
  const int64_t team = team_size(stream);
  double work = 0;
  bool hold = false;
  for (int64_t i = 0; i < count; i++) {
    work += (double)products[i].m * products[i].n * products[i].k;
    hold = hold || (products[i].add && products[i].k > kDepth);
  }
  const bool serial = team == 1 || work < 60e3;
  const int64_t threads = serial ? 1 : team;
  float* pack = scratch.floats(threads * kProductScratch);
  float* held = hold ? scratch.floats(threads * kHeldRows * kHeldColumns) : nullptr;
  if (serial) {
    for (int64_t i = 0; i < count; i++)
      if (products[i].m > 0 && products[i].n > 0) multiply_serial(products[i], pack, held);
    return;
  }
  // Cut the outputs of each product into about four tasks a thread, rows first: every row block packs B again.
  const double share = work / (double)(4 * team);
  int64_t total = 0;
  int64_t *row_cuts = scratch.take<int64_t>(count), *column_cuts = scratch.take<int64_t>(count);
  for (int64_t i = 0; i < count; i++) {
    const Product& g = products[i];
    int64_t cuts = share > 0 ? (int64_t)((double)g.m * g.n * g.k / share + 0.999) : 1;
    cuts = cuts < 1 ? 1 : cuts;
    const int64_t by_rows = ceil_div(g.m, 8 * kRows) < cuts ? ceil_div(g.m, 8 * kRows) : cuts;
    const int64_t rest = ceil_div(cuts, by_rows > 0 ? by_rows : 1);
    const int64_t by_columns = ceil_div(g.n, 2 * kPanel) < rest ? ceil_div(g.n, 2 * kPanel) : rest;
    row_cuts[i] = by_rows > 0 ? by_rows : 1, column_cuts[i] = by_columns > 0 ? by_columns : 1;
    total += g.m > 0 && g.n > 0 ? row_cuts[i] * column_cuts[i] : 0;
  }
  Product* tasks = scratch.take<Product>(total);
  int64_t at = 0;
  for (int64_t i = 0; i < count; i++) {
    const Product& g = products[i];
    if (g.m <= 0 || g.n <= 0) continue;
    const int64_t rows = ceil_div(ceil_div(g.m, row_cuts[i]), kRows) * kRows;
    const int64_t columns = ceil_div(ceil_div(g.n, column_cuts[i]), kPanel) * kPanel;
    for (int64_t i0 = 0; i0 < g.m; i0 += rows)
      for (int64_t j0 = 0; j0 < g.n; j0 += columns) {
        Product t = g;
        t.m = g.m - i0 < rows ? g.m - i0 : rows, t.n = g.n - j0 < columns ? g.n - j0 : columns;
        t.a += i0 * g.ai, t.b += j0 * g.bj, t.c += i0 * g.ci + j0;
        t.bias = g.bias ? g.bias + j0 : nullptr;
        tasks[at++] = t;
      }
  }
  parallel(stream, at, [&](int64_t i, int32_t thread) {
    multiply_serial(tasks[i], pack + thread * kProductScratch,
                    held ? held + thread * kHeldRows * kHeldColumns : nullptr);
  });
}

void multiply_here(const Product& g, float* scratch) {
  if (g.m > 0 && g.n > 0) multiply_serial(g, scratch, nullptr);
}

void multiply_small(int64_t m, int64_t n, int64_t k, const float* a, int64_t ai, int64_t ak, const float* b, int64_t bk,
                    float* c, int64_t ci, bool chain) {
  for (int64_t i = 0; i < m;) {
    const int64_t rows = rows_next(m - i);
    for (int64_t j = 0; j < n; j += kPanel) {
      const int64_t width = n - j < kPanel ? n - j : kPanel, vectors = (width + 15) / 16;
      float* out = c + i * ci + j;
      Tile t = {k,  a + i * ai, ai,      ak, b + j, bk, chain ? out : nullptr,
                ci, nullptr,    nullptr, 0,  out,   ci, width - 16 * (vectors - 1)};
      pick_tile(rows, vectors, t.tail < 16)(t);
    }
    i += rows;
  }
}

}  // namespace SFX_NS
