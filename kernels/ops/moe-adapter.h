// The adapter of one product of the experts, in PEFT's layout (backend.h): y += (scale x A_e^T) B_e^T, the chain of y
// going on over the rank. Backward: dlow = scale dy B_e; dx += dlow A_e; dA_e += dlow^T x; dB_e += dy^T (scale x
// A_e^T).
#ifndef SINKFLEX_OPS_MOE_ADAPTER_H
#define SINKFLEX_OPS_MOE_ADAPTER_H

#include "moe.h"

namespace SFX_NS {

struct ExpertAdapter {
  const float *a, *b;  // NULL: none
  float *da, *db;
  int64_t experts, rank, in, out;
  float scale;
  float *low, *dlow;  // [pairs, rank], of all pairs in sorted order

  bool there() const { return a != nullptr; }

  // low = x A_e^T; pairs [begin, end), x its first row of `in` floats.
  Product compress(int64_t e, int64_t begin, int64_t end, const float* x) const {
    return {end - begin, rank, in, x, in, 1, a + e * rank * in, 1, in, low + begin * rank, rank, false, false, nullptr};
  }
  // y goes on over low B_e^T.
  Product expand(int64_t e, int64_t begin, int64_t end, float* y) const {
    return {end - begin, out,   rank,   low + begin * rank, rank, 1, b + e, experts, rank * experts, y, out,
            true,        false, nullptr};
  }
  // dlow = dy B_e
  Product compress_back(int64_t e, int64_t begin, int64_t end, const float* dy) const {
    return {end - begin,         rank, out,   dy,    out,    1, b + e, rank * experts, experts,
            dlow + begin * rank, rank, false, false, nullptr};
  }
  // dx goes on over dlow A_e.
  Product expand_back(int64_t e, int64_t begin, int64_t end, float* dx) const {
    return {end - begin, in,    rank,   dlow + begin * rank, rank, 1, a + e * rank * in, in, 1, dx, in,
            true,        false, nullptr};
  }
  void scale_rows(float* rows, int64_t begin, int64_t end) const {
    const v16 by = set1(scale);
    for (int64_t i = begin * rank; i < end * rank; i += 16)
      store_part(rows + i, mul(by, load_part(rows + i, end * rank - i)), end * rank - i);
  }

  // On the calling thread, inside a task.
  void add_forward(int64_t e, int64_t begin, int64_t end, const float* x, float* y, float* pack) const {
    if (!there()) return;
    multiply_here(compress(e, begin, end, x), pack);
    scale_rows(low, begin, end);
    multiply_here(expand(e, begin, end, y), pack);
  }
  void add_backward(int64_t e, int64_t begin, int64_t end, const float* dy, float* dx, float* pack) const {
    if (!there()) return;
    multiply_here(compress_back(e, begin, end, dy), pack);
    scale_rows(dlow, begin, end);
    if (dx) multiply_here(expand_back(e, begin, end, dx), pack);
  }
  // The same for all experts over the team; x, y, dy, dx of all pairs, `products` room for one an expert.
  void add_forward(sfx_stream* stream, const Routing& r, const float* x, float* y, Product* products) const {
    if (!there()) return;
    for (int64_t e = 0; e < experts; e++) products[e] = compress(e, r.first[e], r.first[e + 1], x + r.first[e] * in);
    multiply(stream, products, experts);
    scale_rows(low, 0, r.pairs);
    for (int64_t e = 0; e < experts; e++) products[e] = expand(e, r.first[e], r.first[e + 1], y + r.first[e] * out);
    multiply(stream, products, experts);
  }
  void add_backward(sfx_stream* stream, const Routing& r, const float* dy, float* dx, Product* products) const {
    if (!there()) return;
    for (int64_t e = 0; e < experts; e++)
      products[e] = compress_back(e, r.first[e], r.first[e + 1], dy + r.first[e] * out);
    multiply(stream, products, experts);
    scale_rows(dlow, 0, r.pairs);
    if (!dx) return;
    for (int64_t e = 0; e < experts; e++)
      products[e] = expand_back(e, r.first[e], r.first[e + 1], dx + r.first[e] * in);
    multiply(stream, products, experts);
  }
  // dA, dB from the rows of x and dy, after add_backward. dB's columns lie E apart: its chains run in `turned`
  // [E, rank, out], to and fro.
  void add_gradients(sfx_stream* stream, const Routing& r, const float* x, const float* dy, float* turned,
                     Product* products) const {
    if (!there() || !da || !db) return;
    for (int64_t e = 0; e < experts; e++) products[e] = compress(e, r.first[e], r.first[e + 1], x + r.first[e] * in);
    multiply(stream, products, experts);
    scale_rows(low, 0, r.pairs);
    const auto move = [&](bool back) {
      parallel(stream, experts, [&](int64_t e, int32_t) {
        if (r.first[e] == r.first[e + 1]) return;
        for (int64_t j = 0; j < rank; j++)
          for (int64_t o = 0; o < out; o++) {
            float *const chain = turned + (e * rank + j) * out + o, *const place = db + (o * rank + j) * experts + e;
            if (back)
              *place = *chain;
            else
              *chain = *place;
          }
      });
    };
    move(false);
    int64_t count = 0;
    for (int64_t e = 0; e < experts; e++) {
      const int64_t p = r.first[e], rows = r.first[e + 1] - p;
      if (rows == 0) continue;
      products[count++] = {rank, in,   rows,  dlow + p * rank, 1, rank, x + p * in, in, 1, da + e * rank * in,
                           in,   true, false, nullptr};
      products[count++] = {rank, out,  rows,  low + p * rank, 1, rank, dy + p * out, out, 1, turned + e * rank * out,
                           out,  true, false, nullptr};
    }
    multiply(stream, products, count);
    move(true);
  }
};

// Both adapters of an operator; without any, nothing is taken.
struct ExpertAdapters {
  ExpertAdapter up, down;
  float* turned;
};
SFX_INLINE ExpertAdapters expert_adapters(const Scratch& scratch, const sfx_moe_adapters* m, int64_t pairs,
                                          int64_t experts, int64_t h, int64_t I, bool backward) {
  ExpertAdapters all = {};
  if (!m || m->rank <= 0) return all;
  const auto one = [&](const float* a, const float* b, float* da, float* db, int64_t in, int64_t out) {
    ExpertAdapter x = {a, b, da, db, experts, m->rank, in, out, m->scale, nullptr, nullptr};
    if (!a) return x;
    x.low = scratch.floats(pairs * m->rank);
    if (backward) x.dlow = scratch.floats(pairs * m->rank);
    return x;
  };
  all.up = one(m->gate_up_a, m->gate_up_b, m->dgate_up_a, m->dgate_up_b, h, 2 * I);
  all.down = one(m->down_a, m->down_b, m->ddown_a, m->ddown_b, I, h);
  if (backward) all.turned = scratch.floats(experts * m->rank * most(h, 2 * I));
  return all;
}

}  // namespace SFX_NS
#endif
