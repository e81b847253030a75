// The grouped products of the experts and of their adapters: y += (scale x A_e^T) B_e^T, the chain of y going on over
// the rank. Backward: dlow = scale dy B_e; dx += dlow A_e; dA_e += dlow^T x; dB_e += dy^T (scale x A_e^T).
#include "moe.cuh"

namespace sfx::cuda {

int32_t multiply_experts(sfx_stream* stream, const SortedPairs& r, const float* from, const sfx_tensor* w,
                         bool transposed, const sfx_tensor* bias, float* rows) {
  const int64_t in = w->shape[transposed ? 2 : 1], out = w->shape[transposed ? 1 : 2];
  const Product p = {r.pairs, out,   in,    matrix(from, in, 1),          matrix_of(w, 1, transposed), rows, out,
                     1,       false, false, bias ? floats(bias) : nullptr};
  return multiply_rows(stream, p, {r.first, w->shape[0], w->stride[0], bias ? bias->stride[0] : 0, 0});
}

int32_t multiply_gradients(sfx_stream* stream, const SortedPairs& r, const float* left, const float* right,
                           sfx_tensor* dw) {
  const int64_t in = dw->shape[1], out = dw->shape[2];
  const Product p = {
      in,   out,   r.pairs, matrix(left, 1, in), matrix(right, out, 1), floats(dw), dw->stride[1], dw->stride[2],
      true, false, nullptr};
  return multiply_inner(stream, p, {r.first, dw->shape[0], 0, 0, dw->stride[0]});
}

// low = scale x A_e^T
int32_t ExpertAdapter::compress(sfx_stream* stream, const SortedPairs& r, const float* x) const {
  const Product p = {r.pairs, rank, in, matrix(x, in, 1), matrix(a, 1, in), low, rank, 1, false, false, nullptr};
  SFX_TRY(multiply_rows(stream, p, {r.first, experts, rank * in, 0, 0}));
  return cuda::scale(stream, low, r.pairs * rank, scale);
}

int32_t ExpertAdapter::add_forward(sfx_stream* stream, const SortedPairs& r, const float* x, float* y) const {
  if (!a) return SFX_OK;
  SFX_TRY(compress(stream, r, x));
  const Product p = {r.pairs, out,   rank,   matrix(low, rank, 1), matrix(b, experts, rank * experts), y, out, 1,
                     true,    false, nullptr};
  return multiply_rows(stream, p, {r.first, experts, 1, 0, 0});
}

int32_t ExpertAdapter::add_backward(sfx_stream* stream, const SortedPairs& r, const float* dy, float* dx) const {
  if (!a) return SFX_OK;
  const Product p = {r.pairs, rank,  out,    matrix(dy, out, 1), matrix(b, rank * experts, experts), dlow, rank, 1,
                     false,   false, nullptr};
  SFX_TRY(multiply_rows(stream, p, {r.first, experts, 1, 0, 0}));
  SFX_TRY(cuda::scale(stream, dlow, r.pairs * rank, scale));
  if (!dx) return SFX_OK;
  const Product back = {r.pairs, in, rank, matrix(dlow, rank, 1), matrix(a, in, 1), dx, in, 1, true, false, nullptr};
  return multiply_rows(stream, back, {r.first, experts, rank * in, 0, 0});
}

int32_t ExpertAdapter::add_gradients(sfx_stream* stream, const SortedPairs& r, const float* x, const float* dy) const {
  if (!a || !da || !db) return SFX_OK;
  SFX_TRY(compress(stream, r, x));
  const Product left = {rank, in, r.pairs, matrix(dlow, 1, rank), matrix(x, in, 1), da, in, 1, true, false, nullptr};
  SFX_TRY(multiply_inner(stream, left, {r.first, experts, 0, 0, rank * in}));
  const Product right = {rank, out,   r.pairs, matrix(low, 1, rank), matrix(dy, out, 1), db, experts, rank * experts,
                         true, false, nullptr};
  return multiply_inner(stream, right, {r.first, experts, 0, 0, 1});
}

ExpertAdapters expert_adapters(Scratch& scratch, const sfx_moe_adapters* m, int64_t pairs, int64_t experts, int64_t h,
                               int64_t I) {
  ExpertAdapters all = {};
  if (!m || m->rank <= 0) return all;
  const auto one = [&](const float* a, const float* b, float* da, float* db, int64_t in, int64_t out) {
    ExpertAdapter x = {a, b, da, db, experts, m->rank, in, out, m->scale, nullptr, nullptr};
    if (a) x.low = scratch.take<float>(pairs * m->rank), x.dlow = scratch.take<float>(pairs * m->rank);
    return x;
  };
  all.up = one(m->gate_up_a, m->gate_up_b, m->dgate_up_a, m->dgate_up_b, h, 2 * I);
  all.down = one(m->down_a, m->down_b, m->ddown_a, m->ddown_b, I, h);
  return all;
}

int32_t check_experts(const sfx_tensor* x, const sfx_tensor* gate_up, const sfx_tensor* gate_up_bias,
                      const sfx_tensor* down, const sfx_tensor* down_bias, int32_t top_k) {
  SFX_REQUIRE_F32(x, gate_up_bias, down_bias);
  SFX_REQUIRE(unit_last(x), "moe: rows must be contiguous");
  SFX_REQUIRE(top_k <= gate_up->shape[0], "moe: more experts a token than there are");
  SFX_REQUIRE(gate_up->shape[1] == x->shape[1] && gate_up->shape[2] == 2 * down->shape[1] &&
                  down->shape[2] == x->shape[1] && down->shape[0] == gate_up->shape[0],
              "moe: gate_up [E,h,2I] and down [E,I,h] disagree with x");
  for (const sfx_tensor* w : {gate_up, down})
    SFX_REQUIRE(w->dtype != SFX_MXFP4 || (w->stride[1] == 1 && w->stride[2] % 32 == 0),
                "moe: experts in MXFP4 need rows of blocks along their input's width");
  return SFX_OK;
}

}  // namespace sfx::cuda
