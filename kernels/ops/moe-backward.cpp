// Mixture of experts, backward. With dh = dy W2^T (a pair's derivative before its weight):
// dweight = sum_i dh_i act_i + sum_c dy_c b2_c; dact = weight dh; d(gate, up) through the clamped SwiGLU (0 outside the
// clamp); dx += dgu W1^T over experts in ascending id; dW1 += x^T dgu, dW2 += (weight act)^T dy, db2 += weight dy, all
// chained over tokens.
#include "moe-adapter.h"
#include "operators.h"

namespace SFX_NS {
namespace {

struct PairRows {
  const float *gate_up, *dh;  // [pairs, 2I], [pairs, I]
  float *act, *dgu;           // out: weight * act, d(gate, up)
  const float* weight;
  float* dweight;
};

void swiglu_backward(const PairRows& rows, const int32_t* order, int64_t begin, int64_t end, int64_t I, float limit,
                     const float* dy_bias) {
  const v16 top = set1(limit), bottom = set1(-limit), one = set1(1.0f), slope = set1(1.702f);
  for (int64_t p = begin; p < end; p++) {
    const v16 w = set1(rows.weight[order[p]]);
    v16 dot = zero();
    for (int64_t j = 0; j < I; j += 16) {
      const int64_t left = I - j;
      v16 gate, up;
      load_pairs(rows.gate_up + p * 2 * I + 2 * j, left, &gate, &up);
      const m16 gate_off = less(top, gate), up_off = either(less(top, up), less(up, bottom));
      gate = min(gate, top);
      up = max(min(up, top), bottom);
      const v16 s = sigmoid(mul(slope, gate)), g = mul(gate, s), up1 = add(up, one);
      const v16 dh = load_part(rows.dh + p * I + j, left), dact = mul(w, dh), act = mul(up1, g);
      dot = fma(dh, act, dot);
      store_part(rows.act + p * I + j, mul(w, act), left);
      // d(gate s(1.702 gate)) = s (1 + 1.702 gate (1 - s))
      const v16 slope_gate = mul(s, fma(mul(slope, gate), sub(one, s), one));
      const v16 dgate = select(gate_off, zero(), mul(dact, mul(up1, slope_gate)));
      const v16 dup = select(up_off, zero(), mul(dact, g));
      store_pairs(rows.dgu + p * 2 * I + 2 * j, left, dgate, dup);
    }
    if (rows.dweight) rows.dweight[order[p]] = sum_lanes(dot) + (dy_bias ? dy_bias[p] : 0.0f);
  }
}

}  // namespace

int32_t moe_backward(sfx_stream* stream, const sfx_tensor* dy, const sfx_tensor* x, const int32_t* index,
                     const float* weight, int32_t top_k, const sfx_tensor* gate_up, const sfx_tensor* gate_up_bias,
                     const sfx_tensor* down, const sfx_tensor* down_bias, float limit, const void* saved,
                     sfx_tensor* dx, float* dweight, sfx_tensor* dgate_up, sfx_tensor* dgate_up_bias, sfx_tensor* ddown,
                     sfx_tensor* ddown_bias) {
  return moe_adapted_backward(stream, dy, x, index, weight, top_k, gate_up, gate_up_bias, down, down_bias, limit, saved,
                              dx, dweight, dgate_up, dgate_up_bias, ddown, ddown_bias, nullptr);
}

int32_t moe_adapted_backward(sfx_stream* stream, const sfx_tensor* dy, const sfx_tensor* x, const int32_t* index,
                             const float* weight, int32_t top_k, const sfx_tensor* gate_up,
                             const sfx_tensor* gate_up_bias, const sfx_tensor* down, const sfx_tensor* down_bias,
                             float limit, const void* saved, sfx_tensor* dx, float* dweight, sfx_tensor* dgate_up,
                             sfx_tensor* dgate_up_bias, sfx_tensor* ddown, sfx_tensor* ddown_bias,
                             const sfx_moe_adapters* lora) {
  SFX_CHECK_F32(dy, x, gate_up_bias, down_bias, dx, dgate_up, dgate_up_bias, ddown, ddown_bias);
  SFX_CHECK_EXPERTS(gate_up);
  SFX_CHECK_EXPERTS(down);
  SFX_CHECK(unit_last(dy) && unit_last(x) && unit_last(dx) && unit_last(dgate_up) && unit_last(ddown),
            "moe: rows must be contiguous");
  SFX_CHECK(saved != nullptr, "moe: the backward needs what the forward saved");
  const Operation op(stream);
  const int64_t n = x->shape[0], h = x->shape[1], experts = gate_up->shape[0], I = down->shape[1];
  SFX_CHECK(gate_up->shape[1] == h && gate_up->shape[2] == 2 * I && down->shape[2] == h,
            "moe: gate_up [E,h,2I] and down [E,I,h] disagree with x");
  const Routing r = sort_pairs(op, index, n, top_k, experts);
  SFX_CHECK(r.valid, "moe: an expert index lies outside 0..E-1");
  const float* const gu = static_cast<const float*>(saved);
  float *const xs = op.floats(r.pairs * h), *const dys = op.floats(r.pairs * h), *const dxs = op.floats(r.pairs * h);
  float *const dh = op.floats(r.pairs * I), *const act = op.floats(r.pairs * I),
               *const dgu = op.floats(r.pairs * 2 * I);
  float* const dy_bias = down_bias ? op.floats(r.pairs) : nullptr;
  const ExpertAdapters adapters = expert_adapters(op, lora, r.pairs, experts, h, I, true);
  const PairRows rows = {gu, dh, act, dgu, weight, dweight};
  const auto bias_dot = [&](int64_t e, int64_t begin, int64_t end) {
    if (!down_bias) return;
    const float* bias = data(down_bias) + e * down_bias->stride[0];
    for (int64_t p = begin; p < end; p++) {
      v16 dot = zero();
      for (int64_t j = 0; j < h; j += 16) dot = fma(load_part(dys + p * h + j, h - j), load_part(bias + j, h - j), dot);
      dy_bias[p] = sum_lanes(dot);
    }
  };
  const auto through_down = [&](int64_t e, int64_t begin, int64_t end) {
    return expert_product(end - begin, dys + begin * h, down, e, true, dh + begin * I, nullptr);
  };
  const auto through_up = [&](int64_t e, int64_t begin, int64_t end) {
    return expert_product(end - begin, dgu + begin * 2 * I, gate_up, e, true, dxs + begin * h, nullptr);
  };
  Product* const products = op.take<Product>(2 * experts);
  const Pieces pieces = cut_pieces(op, stream, r, experts, 6 * I + 3 * h);
  if (pieces.worthwhile) {
    float* const packs = op.floats(team_size(stream) * kProductScratch);
    parallel(stream, pieces.count, [&](int64_t i, int32_t thread) {
      const Piece& p = pieces.piece[i];
      gather_rows(x, r, top_k, p.begin, p.end, xs);
      gather_rows(dy, r, top_k, p.begin, p.end, dys);
      bias_dot(p.expert, p.begin, p.end);
      float* const pack = packs + thread * kProductScratch;
      multiply_here(through_down(p.expert, p.begin, p.end), pack);
      adapters.down.add_backward(p.expert, p.begin, p.end, dys + p.begin * h, dh + p.begin * I, pack);
      swiglu_backward(rows, r.order, p.begin, p.end, I, limit, dy_bias);
      if (dx) multiply_here(through_up(p.expert, p.begin, p.end), pack);
      adapters.up.add_backward(p.expert, p.begin, p.end, dgu + p.begin * 2 * I, dx ? dxs + p.begin * h : nullptr, pack);
    });
  } else {
    gather_rows(stream, x, r, top_k, xs);
    gather_rows(stream, dy, r, top_k, dys);
    for (int64_t e = 0; e < experts; e++) bias_dot(e, r.first[e], r.first[e + 1]);
    for (int64_t e = 0; e < experts; e++) products[e] = through_down(e, r.first[e], r.first[e + 1]);
    multiply(stream, products, experts);
    adapters.down.add_backward(stream, r, dys, dh, products);
    parallel_ranges(stream, r.pairs, 1, (double)r.pairs * I,
                    [&](int64_t begin, int64_t end) { swiglu_backward(rows, r.order, begin, end, I, limit, dy_bias); });
    for (int64_t e = 0; e < experts; e++) products[e] = through_up(e, r.first[e], r.first[e + 1]);
    if (dx) multiply(stream, products, experts);
    adapters.up.add_backward(stream, r, dgu, dx ? dxs : nullptr, products);
  }
  if (dx)
    parallel_ranges(stream, n, 1, (double)r.pairs * h / 16, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; t++)
        for (int64_t j = 0; j < h; j += 16) {
          float* to = data(dx) + t * dx->stride[0] + j;
          v16 sum = load_part(to, h - j);
          for (int32_t i = 0; i < top_k; i++) sum = add(sum, load_part(dxs + r.slot[t * top_k + i] * h + j, h - j));
          store_part(to, sum, h - j);
        }
    });
  int64_t count = 0;
  for (int64_t e = 0; e < experts; e++) {
    const int64_t p = r.first[e], rows_e = r.first[e + 1] - p;
    if (rows_e == 0) continue;
    if (dgate_up)
      products[count++] = {h,
                           2 * I,
                           rows_e,
                           xs + p * h,
                           1,
                           h,
                           dgu + p * 2 * I,
                           2 * I,
                           1,
                           data(dgate_up) + e * dgate_up->stride[0],
                           dgate_up->stride[1],
                           true,
                           false,
                           nullptr};
    if (ddown)
      products[count++] = {I,
                           h,
                           rows_e,
                           act + p * I,
                           1,
                           I,
                           dys + p * h,
                           h,
                           1,
                           data(ddown) + e * ddown->stride[0],
                           ddown->stride[1],
                           true,
                           false,
                           nullptr};
  }
  multiply(stream, products, count);
  adapters.up.add_gradients(stream, r, xs, dgu, adapters.turned, products);
  adapters.down.add_gradients(stream, r, act, dys, adapters.turned, products);  // act: times the pair's weight
  for (int64_t e = 0; e < experts; e++) {
    const int64_t p = r.first[e], rows_e = r.first[e + 1] - p;
    if (dgate_up_bias)
      add_column_sums(stream, dgu + p * 2 * I, 2 * I, rows_e, 2 * I,
                      data(dgate_up_bias) + e * dgate_up_bias->stride[0]);
  }
  if (ddown_bias)
    parallel(stream, experts, [&](int64_t e, int32_t) {
      float* const sum = data(ddown_bias) + e * ddown_bias->stride[0];
      for (int64_t j = 0; j < h; j += 16) {
        v16 acc = load_part(sum + j, h - j);
        for (int64_t i = r.first[e]; i < r.first[e + 1]; i++)
          acc = fma(set1(weight[r.order[i]]), load_part(dys + i * h + j, h - j), acc);
        store_part(sum + j, acc, h - j);
      }
    });
  return SFX_OK;
}

}  // namespace SFX_NS
