// y[m,n] = x w^T for few rows. A handful of rows: sixteen outputs at a time, the weights turned in registers, so that
// lanes are outputs. More rows: lanes are rows of x and the weights are broadcast, y^T = w x^T with the tiles of
// gemm-tile.h; what a tile leaves is turned on its way to y. Every output is the same chain over k either way.
// Roofline: one row reads 4 bytes for one fma and is bound by memory; from about 16 rows on the fmas count.
#include "gemm-narrow.h"

#include "gemm-tile.h"
#include "operation.h"

namespace SFX_NS {
namespace {

#if defined(SFX_ISA_AVX512)
constexpr int64_t kTurnedInRegisters = 8;  // rows: their chains and the weights stay in registers
#else
constexpr int64_t kTurnedInRegisters = 4;
#endif
constexpr int64_t kWidened = 512;  // weights of a tile that are widened at once
constexpr int64_t kTogether = 48;  // outputs whose results are turned at once: whole cache lines of y

// Lanes of the panel that begins with row i: 16 or kPanel.
SFX_INLINE int64_t panel_lanes(int64_t m, int64_t i) { return kWide == 1 || m - i <= 16 ? 16 : kPanel; }

// turned[q][0..16) = the weights of outputs j..j+16 for p + q; zero beyond the product.
void turn_weights(const Product& g, int64_t j, int64_t p, float* turned) {
  const int64_t outputs = g.n - j < 16 ? g.n - j : 16, left = g.k - p;
  if (!widened(g) && outputs == 16 && left >= 16) {
    const float* const from = g.b + j * g.bj + p;
    for (int64_t i = 16; i < 32; i++) __builtin_prefetch(from + i * g.bj, 0, 2);  // the next sixteen outputs'
    transpose16(from, g.bj, turned, 16);
    return;
  }
  float block[256];
  for (int64_t i = 0; i < 16; i++) {
    v16 row = zero();
    if (i < outputs)
      row = widened(g) ? load_widened(g, (j + i) * g.bj + p, left) : load_part(g.b + (j + i) * g.bj + p, left);
    store(block + 16 * i, row);
  }
  transpose16(block, 16, turned, 16);
}

template <int M>
void handful(const Product& g) {
  for (int64_t j = 0; j < g.n; j += 16) {
    v16 acc[M];
#pragma GCC unroll 8
    for (int i = 0; i < M; i++) acc[i] = zero();
    for (int64_t p = 0; p < g.k; p += 16) {
      float turned[256];
      turn_weights(g, j, p, turned);
      const int64_t steps = g.k - p < 16 ? g.k - p : 16;
      for (int64_t q = 0; q < steps; q++) {
        const v16 w = load(turned + 16 * q);
#pragma GCC unroll 8
        for (int i = 0; i < M; i++) acc[i] = fma(set1(g.a[i * g.ai + p + q]), w, acc[i]);
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < M; i++) {
      float* const out = g.c + i * g.ci + j;
      if (g.bias) acc[i] = add(acc[i], load_part(g.bias + j, g.n - j));
      if (g.add) acc[i] = add(acc[i], load_part(out, g.n - j));
      store_part(out, acc[i], g.n - j);
    }
  }
}

// y[i0.., j..j+outputs) from left[output][lanes] of one panel; rows of `left` up to the next sixteenth are read.
void store_turned(const Product& g, const float* left, int64_t lanes, int64_t i0, int64_t j, int64_t outputs) {
  for (int64_t l = 0; l < lanes && i0 + l < g.m; l += 16)
    for (int64_t o = 0; o < outputs; o += 16) {
      float* const y0 = g.c + (i0 + l) * g.ci + j + o;
      if (!g.bias && !g.add && outputs - o >= 16 && g.m - i0 - l >= 16) {
        transpose16(left + o * lanes + l, lanes, y0, g.ci);
        continue;
      }
      float rows[256];
      transpose16(left + o * lanes + l, lanes, rows, 16);
      for (int64_t i = 0; i < 16 && i0 + l + i < g.m; i++) {
        v16 y = load(rows + 16 * i);
        float* const out = y0 + i * g.ci;
        if (g.bias) y = add(y, load_part(g.bias + j + o, outputs - o));
        if (g.add) y = add(y, load_part(out, outputs - o));
        store_part(out, y, outputs - o);
      }
    }
}

}  // namespace

int64_t narrow_floats(const Product& g) { return g.m <= kTurnedInRegisters ? 1 : (g.m + 15) / 16 * 16 * g.k; }

void turn_rows(const Product& g, float* to) {
  if (g.m <= kTurnedInRegisters) return;
  for (int64_t i0 = 0; i0 < g.m; i0 += kPanel) {
    const int64_t lanes = panel_lanes(g.m, i0);
    for (int64_t i = i0; i < i0 + lanes; i += 16) {
      const int64_t rows = g.m - i < 16 ? (g.m > i ? g.m - i : 0) : 16, fast = rows == 16 ? g.k / 16 * 16 : 0;
      float* const panel = to + i0 * g.k + (i - i0);
      for (int64_t p = 0; p < fast; p += 16) transpose16(g.a + i * g.ai + p, g.ai, panel + p * lanes, lanes);
      for (int64_t p = fast; p < g.k; p++)
        for (int64_t r = 0; r < 16; r++) panel[p * lanes + r] = r < rows ? g.a[(i + r) * g.ai + p] : 0.0f;
    }
  }
}

void multiply_narrow(const Product& g, const float* turned, float* scratch) {
  switch (g.m) {
    case 1:
      return handful<1>(g);
    case 2:
      return handful<2>(g);
    case 3:
      return handful<3>(g);
    case 4:
      return handful<4>(g);
#if defined(SFX_ISA_AVX512)
    case 5:
      return handful<5>(g);
    case 6:
      return handful<6>(g);
    case 7:
      return handful<7>(g);
    case 8:
      return handful<8>(g);
#endif
    default:
      break;
  }
  float* const left = scratch;  // a panel: [kTogether][lanes]
  float* const wide = scratch + kNarrowRows * kTogether;
  for (int64_t i = 0; i < kNarrowRows * kTogether; i++) left[i] = 0.0f;
  const int64_t depth = widened(g) ? kWidened : g.k;
  for (int64_t j0 = 0; j0 < g.n; j0 += kTogether) {
    const int64_t together = least(kTogether, g.n - j0);
    for (int64_t r0 = 0; r0 < together;) {
      const int64_t outputs = rows_next(together - r0), j = j0 + r0;
      for (int64_t i0 = 0; i0 < g.m; i0 += kPanel) {
        const int64_t lanes = panel_lanes(g.m, i0);
        float* const to = left + i0 * kTogether + r0 * lanes;
        for (int64_t p = 0; p < g.k || p == 0; p += depth) {
          const int64_t kk = g.k - p < depth ? g.k - p : depth;
          if (widened(g))
            for (int64_t r = 0; r < outputs; r++)
              for (int64_t q = 0; q < kk; q += 16)
                store(wide + r * kWidened + q, load_widened(g, (j + r) * g.bj + p + q, kk - q));
          Tile t = {};
          t.k = kk;
          t.a = widened(g) ? wide : g.b + j * g.bj, t.ai = widened(g) ? kWidened : g.bj, t.ak = 1;
          t.b = turned + i0 * g.k + p * lanes, t.bk = lanes;
          t.from = p > 0 ? to : nullptr, t.from_row = lanes;
          t.c = to, t.ci = lanes;
          t.tail = 16;
          if (!widened(g) && i0 == 0) {
            t.ahead = t.a + outputs * g.bj;
            pick_streaming_tile(outputs, lanes / 16)(t);
          } else {
            pick_tile(outputs, lanes / 16, false)(t);
          }
        }
      }
      r0 += outputs;
    }
    for (int64_t i0 = 0; i0 < g.m; i0 += kPanel)
      store_turned(g, left + i0 * kTogether, panel_lanes(g.m, i0), i0, j0, together);
  }
}

}  // namespace SFX_NS
