// Mixture of experts with gpt-oss's clamped SwiGLU, forward. (gate, up) = x W1 + b1 interleaved; gate = min(gate,
// limit), up = clamp(up, +-limit); act = (up + 1) gate sigmoid(1.702 gate); y += sum over the chosen experts in
// ascending id of weight (act W2 + b2), one fma chain a token. (token, choice) pairs are sorted by expert once, tokens
// ascending inside, so that each expert is two dense products.
#include "moe-adapter.h"
#include "operators.h"

namespace SFX_NS {

int64_t moe_saved_bytes(int64_t n, int64_t, int64_t I, int64_t, int32_t top_k) {
  return n * top_k * 2 * I * (int64_t)sizeof(float);
}

// order: pairs sorted by (expert, token); slot[t * k + i]: the places of token t in that order, ascending, so ascending
// in expert.
Routing sort_pairs(const Scratch& scratch, const int32_t* index, int64_t n, int32_t top_k, int64_t experts) {
  Routing r = {n * top_k, scratch.take<int64_t>(experts + 1), scratch.take<int32_t>(n * top_k),
               scratch.take<int32_t>(n * top_k), true};
  int64_t* const next = scratch.take<int64_t>(experts);
  for (int64_t e = 0; e <= experts; e++) r.first[e] = 0;
  for (int64_t i = 0; i < r.pairs; i++) {
    if (index[i] < 0 || index[i] >= experts) {
      r.valid = false;
      return r;
    }
    r.first[index[i] + 1]++;
  }
  for (int64_t e = 0; e < experts; e++) r.first[e + 1] += r.first[e], next[e] = r.first[e];
  for (int64_t i = 0; i < r.pairs; i++) r.order[next[index[i]]++] = (int32_t)i;
  for (int64_t e = 0; e < experts; e++) next[e] = 0;
  int32_t* const filled = scratch.take<int32_t>(n);
  for (int64_t t = 0; t < n; t++) filled[t] = 0;
  for (int64_t p = 0; p < r.pairs; p++) {
    const int64_t t = r.order[p] / top_k;
    r.slot[t * top_k + filled[t]++] = (int32_t)p;
  }
  return r;
}

Pieces cut_pieces(const Scratch& scratch, sfx_stream* stream, const Routing& r, int64_t experts,
                  int64_t floats_a_pair) {
  const int64_t rows = least(most(256 * 1024 / floats_a_pair / 12 * 12, 48), 384);
  Pieces p = {scratch.take<Piece>(experts + r.pairs / rows + 1), 0, false};
  for (int64_t e = 0; e < experts; e++)
    for (int64_t begin = r.first[e]; begin < r.first[e + 1]; begin += rows)
      p.piece[p.count++] = {e, begin, least(begin + rows, r.first[e + 1])};
  p.worthwhile = team_size(stream) == 1 || p.count >= 2 * team_size(stream);
  return p;
}

// to[pair] = x[token of the pair]
void gather_rows(const sfx_tensor* x, const Routing& r, int32_t top_k, int64_t begin, int64_t end, float* to) {
  const int64_t h = x->shape[1];
  for (int64_t p = begin; p < end; p++)
    memcpy(to + p * h, data(x) + r.order[p] / top_k * x->stride[0], (size_t)h * sizeof(float));
}
void gather_rows(sfx_stream* stream, const sfx_tensor* x, const Routing& r, int32_t top_k, float* to) {
  parallel_ranges(stream, r.pairs, 1, (double)r.pairs * x->shape[1] / 16,
                  [&](int64_t begin, int64_t end) { gather_rows(x, r, top_k, begin, end, to); });
}

// act[pair, I] from gate_up[pair, 2I]
void swiglu(const float* gate_up, int64_t begin, int64_t end, int64_t I, float limit, float* act) {
  const v16 top = set1(limit), bottom = set1(-limit), one = set1(1.0f), slope = set1(1.702f);
  for (int64_t r = begin; r < end; r++)
    for (int64_t j = 0; j < I; j += 16) {
      const int64_t left = I - j;
      v16 gate, up;
      load_pairs(gate_up + r * 2 * I + 2 * j, left, &gate, &up);
      gate = min(gate, top);
      up = max(min(up, top), bottom);
      store_part(act + r * I + j, mul(add(up, one), mul(gate, sigmoid(mul(slope, gate)))), left);
    }
}

int32_t moe_forward(sfx_stream* stream, const sfx_tensor* x, const int32_t* index, const float* weight, int32_t top_k,
                    const sfx_tensor* gate_up, const sfx_tensor* gate_up_bias, const sfx_tensor* down,
                    const sfx_tensor* down_bias, float limit, sfx_tensor* y, void* saved) {
  return moe_adapted_forward(stream, x, index, weight, top_k, gate_up, gate_up_bias, down, down_bias, limit, y, saved,
                             nullptr);
}

int32_t moe_adapted_forward(sfx_stream* stream, const sfx_tensor* x, const int32_t* index, const float* weight,
                            int32_t top_k, const sfx_tensor* gate_up, const sfx_tensor* gate_up_bias,
                            const sfx_tensor* down, const sfx_tensor* down_bias, float limit, sfx_tensor* y,
                            void* saved, const sfx_moe_adapters* lora) {
  SFX_CHECK_F32(x, gate_up_bias, down_bias, y);
  SFX_CHECK_EXPERTS(gate_up);
  SFX_CHECK_EXPERTS(down);
  SFX_CHECK(unit_last(x) && unit_last(y), "moe: rows must be contiguous");
  SFX_CHECK(y || saved, "moe: neither an output nor a place to save");
  const Operation op(stream);
  const int64_t n = x->shape[0], h = x->shape[1], experts = gate_up->shape[0], I = down->shape[1];
  SFX_CHECK(gate_up->shape[1] == h && gate_up->shape[2] == 2 * I && down->shape[2] == h,
            "moe: gate_up [E,h,2I] and down [E,I,h] disagree with x");
  const Routing r = sort_pairs(op, index, n, top_k, experts);
  SFX_CHECK(r.valid, "moe: an expert index lies outside 0..E-1");
  float* const xs = op.floats(r.pairs * h);
  float *const act = y ? op.floats(r.pairs * I) : nullptr, *const ys = y ? op.floats(r.pairs * h) : nullptr;
  float* const gu = saved ? static_cast<float*>(saved) : op.floats(r.pairs * 2 * I);
  const ExpertAdapters adapters = expert_adapters(op, lora, r.pairs, experts, h, I, false);
  const auto up = [&](int64_t e, int64_t begin, int64_t end) {
    return expert_product(end - begin, xs + begin * h, gate_up, e, false, gu + begin * 2 * I, gate_up_bias);
  };
  const auto back = [&](int64_t e, int64_t begin, int64_t end) {
    return expert_product(end - begin, act + begin * I, down, e, false, ys + begin * h, down_bias);
  };
  const Pieces pieces = cut_pieces(op, stream, r, experts, 3 * I + 2 * h);
  if (pieces.worthwhile) {
    float* const packs = op.floats(team_size(stream) * kProductScratch);
    parallel(stream, pieces.count, [&](int64_t i, int32_t thread) {
      const Piece& p = pieces.piece[i];
      gather_rows(x, r, top_k, p.begin, p.end, xs);
      float* const pack = packs + thread * kProductScratch;
      multiply_here(up(p.expert, p.begin, p.end), pack);
      adapters.up.add_forward(p.expert, p.begin, p.end, xs + p.begin * h, gu + p.begin * 2 * I, pack);
      if (!y) return;
      swiglu(gu, p.begin, p.end, I, limit, act);
      multiply_here(back(p.expert, p.begin, p.end), pack);
      adapters.down.add_forward(p.expert, p.begin, p.end, act + p.begin * I, ys + p.begin * h, pack);
    });
  } else {
    Product* const products = op.take<Product>(experts);
    gather_rows(stream, x, r, top_k, xs);
    for (int64_t e = 0; e < experts; e++) products[e] = up(e, r.first[e], r.first[e + 1]);
    multiply(stream, products, experts);
    adapters.up.add_forward(stream, r, xs, gu, products);
    if (!y) return SFX_OK;
    parallel_ranges(stream, r.pairs, 1, (double)r.pairs * I / 2,
                    [&](int64_t begin, int64_t end) { swiglu(gu, begin, end, I, limit, act); });
    for (int64_t e = 0; e < experts; e++) products[e] = back(e, r.first[e], r.first[e + 1]);
    multiply(stream, products, experts);
    adapters.down.add_forward(stream, r, act, ys, products);
  }
  if (!y) return SFX_OK;
  parallel_ranges(stream, n, 1, (double)r.pairs * h / 16, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; t++)
      for (int64_t j = 0; j < h; j += 16) {
        float* to = data(y) + t * y->stride[0] + j;
        v16 sum = load_part(to, h - j);
        for (int32_t i = 0; i < top_k; i++) {
          const int64_t p = r.slot[t * top_k + i];
          sum = fma(set1(weight[r.order[p]]), load_part(ys + p * h + j, h - j), sum);
        }
        store_part(to, sum, h - j);
      }
  });
  return SFX_OK;
}

}  // namespace SFX_NS
