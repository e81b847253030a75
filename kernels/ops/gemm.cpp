// Register-tiled matrix products. A tile of kRows x kWide*16 outputs stays in registers while k runs; A is broadcast
// from where it lies, B comes from panels packed inside the call (transposed on the way for [out,in] weights), or
// directly when that is cheaper. Roofline: one fma an element pair; a tile step loads kWide vectors and kRows scalars
// for kRows*kWide fmas. Few rows over [out,in] weights go another way: gemm-narrow.cpp.
#include "gemm-narrow.h"
#include "gemm-tile.h"
#include "operation.h"

namespace SFX_NS {
namespace {

constexpr int64_t kPackFloats = 200 * 1024;  // the packed block of B
constexpr int64_t kDepth = 512;              // longest block of k
constexpr int64_t kCopied = 48;              // rows of A copied at once where its columns lie far apart
static_assert(kPackFloats + kCopied * kDepth + 16 <= kProductScratch, "both packed blocks fit in a product's scratch");

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

// The same from element `at` of a B that is widened; its rows or columns are contiguous.
void pack_widened(const Product& g, int64_t at, int64_t k, int64_t columns, float* to) {
  const int64_t bk = g.bk, bj = g.bj;
  if (bj == 1) {
    for (int64_t p = 0; p < k; p++)
      for (int64_t v = 0; v < kPanel; v += 16)
        store(to + p * kPanel + v, columns > v ? load_widened(g, at + p * bk + v, columns - v) : zero());
    return;
  }
  float block[256];
  for (int64_t j = 0; j < kPanel; j += 16)
    for (int64_t p = 0; p < k; p += 16) {
      for (int64_t i = 0; i < 16; i++)
        store(block + 16 * i, j + i < columns ? load_widened(g, at + (j + i) * bj + p, k - p) : zero());
      float turned[256];
      transpose16(block, 16, turned, 16);
      for (int64_t i = 0; i < 16 && p + i < k; i++) store(to + (p + i) * kPanel + j, load(turned + 16 * i));
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

// B is read where it lies.
bool reads_directly(const Product& g) { return !widened(g) && g.bj == 1 && (g.m <= 2 * kRows || g.bk <= 64); }
bool copies_a(const Product& g) { return g.ai == 1 && g.ak >= 256 && g.n > 2 * kPanel; }

// One product on the calling thread with `pack` scratch of kProductScratch, and `held` for partial chains when an old C
// is added last.
constexpr int64_t kHeldRows = 96, kHeldColumns = 1024;
void multiply_serial(const Product& g, float* pack, float* held) {
  const bool hold = g.add && g.k > kDepth;
  const int64_t depth = g.k < kDepth ? (g.k > 0 ? g.k : 1) : kDepth;
  const int64_t columns = kPackFloats / depth / kPanel * kPanel;
  const int64_t column_block = hold && columns > kHeldColumns ? kHeldColumns : columns;
  const int64_t row_block = hold ? kHeldRows : g.m;
  const bool direct = reads_directly(g), copy_a = copies_a(g);
  float* const packed_a = pack + kPackFloats;
  for (int64_t i0 = 0; i0 < g.m; i0 += row_block) {
    const int64_t i1 = i0 + row_block < g.m ? i0 + row_block : g.m;
    for (int64_t j0 = 0; j0 < g.n; j0 += column_block) {
      const int64_t j1 = j0 + column_block < g.n ? j0 + column_block : g.n;
      for (int64_t p0 = 0; p0 < g.k || p0 == 0; p0 += depth) {
        const int64_t kk = p0 + depth < g.k ? depth : g.k - p0;
        const bool first = p0 == 0, last = p0 + kk >= g.k;
        if (!direct)
          for (int64_t j = j0; j < j1; j += kPanel) {
            const int64_t at = p0 * g.bk + j * g.bj, width = j1 - j < kPanel ? j1 - j : kPanel;
            float* const to = pack + (j - j0) * kk;
            if (widened(g))
              pack_widened(g, at, kk, width, to);
            else
              pack_panel(g.b + at, g.bk, g.bj, kk, width, to);
          }
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

namespace {

// One piece of a product, and the rows of A that are shared by all of them where it is a narrow one.
struct Piece {
  Product product;
  const float* turned;  // NULL: not narrow
};
struct Workspace {
  float *pack, *held;
};

struct Cuts {
  int64_t rows, columns;
};

// Every block of rows packs B again, every block of columns copies A again where A is copied: the dearer one is cut
// less.
Cuts cut_product(const Product& g, int64_t wanted) {
  const int64_t most_rows = is_narrow(g) ? 1 : most(ceil_div(g.m, 8 * kRows), 1);
  const bool rows_first = reads_directly(g) || (copies_a(g) && g.n <= g.m);
  const int64_t most_columns = most(ceil_div(g.n, (rows_first || most_rows == 1 ? 2 : 4) * kPanel), 1);
  Cuts c;
  if (rows_first) {
    c.rows = least(most_rows, wanted);
    c.columns = least(most_columns, ceil_div(wanted, c.rows));
  } else {
    c.columns = least(most_columns, wanted);
    c.rows = least(most_rows, ceil_div(wanted, c.columns));
  }
  return c;
}

void run_piece(const Piece& piece, const Workspace& w) {
  if (piece.turned)
    multiply_narrow(piece.product, piece.turned, w.pack);
  else
    multiply_serial(piece.product, w.pack, w.held);
}

}  // namespace

void multiply(sfx_stream* stream, const Product* products, int64_t count) {
  const Scratch scratch(stream);
  const int64_t team = team_size(stream);
  double work = 0;
  bool hold = false;
  for (int64_t i = 0; i < count; i++) {
    work += (double)products[i].m * products[i].n * products[i].k;
    hold = hold || (products[i].add && products[i].k > kDepth && !is_narrow(products[i]));
  }
  const bool serial = team == 1 || work < 60e3;
  const int64_t threads = serial ? 1 : team;
  float* const pack = scratch.floats(threads * kProductScratch);
  float* const held = hold ? scratch.floats(threads * kHeldRows * kHeldColumns) : nullptr;
  // Cut the outputs of each product into about four tasks a thread; narrow ones finer, since that costs nothing.
  const double share = work / (double)(4 * team);
  int64_t total = 0;
  Cuts* const cuts = scratch.take<Cuts>(count);
  for (int64_t i = 0; i < count; i++) {
    const Product& g = products[i];
    const int64_t wanted = share > 0 && !serial ? (int64_t)((double)g.m * g.n * g.k / share + 0.999) : 1;
    cuts[i] = cut_product(g, most(is_narrow(g) ? 4 * wanted : wanted, 1));
    total += g.m > 0 && g.n > 0 ? cuts[i].rows * cuts[i].columns : 0;
  }
  Piece* const pieces = scratch.take<Piece>(total);
  int64_t at = 0;
  for (int64_t i = 0; i < count; i++) {
    const Product& g = products[i];
    if (g.m <= 0 || g.n <= 0) continue;
    const float* turned = nullptr;
    if (is_narrow(g)) {
      float* const to = scratch.floats(narrow_floats(g));
      turn_rows(g, to);
      turned = to;
    }
    const int64_t rows = ceil_div(ceil_div(g.m, cuts[i].rows), kRows) * kRows;
    const int64_t columns = ceil_div(ceil_div(g.n, cuts[i].columns), kPanel) * kPanel;
    for (int64_t i0 = 0; i0 < g.m; i0 += turned ? g.m : rows)
      for (int64_t j0 = 0; j0 < g.n; j0 += columns) {
        Product t = g;
        t.m = turned || g.m - i0 < rows ? g.m - i0 : rows, t.n = g.n - j0 < columns ? g.n - j0 : columns;
        t.a += i0 * g.ai, t.c += i0 * g.ci + j0;
        move_weight(&t, j0 * g.bj);
        t.bias = g.bias ? g.bias + j0 : nullptr;
        pieces[at++] = {t, turned};
      }
  }
  if (serial) {
    for (int64_t i = 0; i < at; i++) run_piece(pieces[i], {pack, held});
    return;
  }
  parallel(stream, at, [&](int64_t i, int32_t thread) {
    run_piece(pieces[i], {pack + thread * kProductScratch, held ? held + thread * kHeldRows * kHeldColumns : nullptr});
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
