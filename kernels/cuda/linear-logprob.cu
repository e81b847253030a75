// The fused head. z = hidden w^T / T; logprob = z_target - lse; entropy = lse - sum p z, for the rows that have a
// target. Backward: dz_j = dlogprob ([j = target] - p_j) - dentropy p_j (log p_j + entropy); dhidden = dz w / T; dw +=
// dz^T hidden / T, chained over rows. The backward computes the logits again.
#include <algorithm>

#include "rows.cuh"
#include "vocabulary.cuh"

namespace sfx::cuda {

namespace {

constexpr int64_t kLogitBytes = 256 << 20;  // that are held at once, for a large vocabulary

// The rows that have a target, gathered.
struct Chosen {
  int64_t count;
  const int32_t *row, *target;  // [count], device memory
  float* hidden;                // [count, h]
};
int32_t choose(Scratch& scratch, const sfx_tensor* hidden, const int32_t* target, int64_t vocabulary, Chosen* c) {
  const int64_t n = hidden->shape[0], h = hidden->shape[1];
  std::vector<int32_t> all((size_t)n), rows, targets;
  SFX_TRY(copy(scratch.stream(), all.data(), target, n * (int64_t)sizeof(int32_t)));
  for (int64_t r = 0; r < n; r++) {
    const int32_t t = all[(size_t)r];
    SFX_REQUIRE(t < vocabulary, "linear_logprob: a target lies outside the vocabulary");
    if (t >= 0) rows.push_back((int32_t)r), targets.push_back(t);
  }
  *c = {(int64_t)rows.size(), scratch.input(rows), scratch.input(targets),
        scratch.take<float>((int64_t)rows.size() * h)};
  SFX_TRY(scratch.status());
  return gather_rows(scratch.stream(), floats(hidden), hidden->stride[0], c->row, 1, c->count, h, c->hidden);
}

struct HeadArguments {
  float* logits;  // [rows, V]; backward: becomes dz
  const int32_t *row, *target;
  int64_t vocabulary;
  float inverse;
  float *logprob, *entropy, *lse;                                // forward; may be NULL
  const float *saved_lse, *saved_entropy, *dlogprob, *dentropy;  // backward; dentropy may be NULL
};

__global__ void __launch_bounds__(kRowThreads) logprob_forward_kernel(const HeadArguments a) {
  float* const z = a.logits + blockIdx.x * a.vocabulary;
  scale_row(z, a.vocabulary, a.inverse);
  const RowSum s = sum_row(z, a.vocabulary, reinterpret_cast<float*>(shared_memory()));
  if (threadIdx.x != 0) return;
  const int64_t r = a.row[blockIdx.x];
  if (a.logprob) a.logprob[r] = z[a.target[blockIdx.x]] - s.lse();
  if (a.entropy) a.entropy[r] = s.entropy();
  if (a.lse) a.lse[r] = s.lse();
}

__global__ void __launch_bounds__(kRowThreads) logprob_backward_kernel(const HeadArguments a) {
  float* const z = a.logits + blockIdx.x * a.vocabulary;
  const int64_t r = a.row[blockIdx.x];
  const int32_t target = a.target[blockIdx.x];
  const float lse = a.saved_lse[r], dl = a.dlogprob[r] * a.inverse;
  const float de = a.dentropy ? a.dentropy[r] * a.inverse : 0.0f, entropy = a.dentropy ? a.saved_entropy[r] : 0.0f;
  for (int64_t v = threadIdx.x; v < a.vocabulary; v += kRowThreads) {
    const float log_p = z[v] * a.inverse - lse, p = expf(log_p);
    // The target's own entry: dlogprob (1 - p) has no cancellation to lose when p is near 1.
    const float d = v == target ? dl * (1.0f - p) : -dl * p;
    z[v] = a.dentropy ? d - de * p * (fmaxf(log_p, -200.0f) + entropy) : d;
  }
}

int32_t check_head(const sfx_tensor* hidden, const sfx_tensor* w) {
  SFX_REQUIRE_F32(hidden);
  SFX_REQUIRE(hidden->shape[1] == w->shape[1] && w->shape[0] > 0, "linear_logprob: hidden [n,h] and w [V,h] disagree");
  SFX_REQUIRE(unit_last(hidden), "linear_logprob: rows must be contiguous");
  return SFX_OK;
}

}  // namespace

int64_t rows_at_once(int64_t vocabulary, int64_t rows) {
  return std::min(std::max<int64_t>(kLogitBytes / (int64_t)sizeof(float) / vocabulary, 64), rows);
}

int32_t linear_logprob_forward(sfx_stream* stream, const sfx_tensor* hidden, const sfx_tensor* w, const int32_t* target,
                               float temperature, float* logprob, float* entropy, float* lse) {
  SFX_TRY(check_head(hidden, w));
  Scratch scratch(stream);
  const int64_t n = hidden->shape[0], h = hidden->shape[1], V = w->shape[0];
  Chosen c;
  SFX_TRY(choose(scratch, hidden, target, V, &c));
  for (float* out : {logprob, entropy, lse})
    if (out) SFX_TRY(fill_zero(stream, out, n * (int64_t)sizeof(float)));
  const int64_t at_once = rows_at_once(V, c.count);
  HeadArguments a = {};
  a.logits = scratch.take<float>(at_once * V), a.vocabulary = V, a.inverse = inverse_temperature(temperature);
  a.logprob = logprob, a.entropy = entropy, a.lse = lse;
  SFX_TRY(scratch.status());
  for (int64_t begin = 0; begin < c.count; begin += at_once) {
    const int64_t rows = std::min(at_once, c.count - begin);
    SFX_TRY(multiply_logits(stream, c.hidden + begin * h, h, rows, w, a.logits));
    a.row = c.row + begin, a.target = c.target + begin;
    SFX_TRY(SFX_LAUNCH(stream, logprob_forward_kernel, grid(rows), kRowThreads, kWarpSize * sizeof(float), a));
  }
  return SFX_OK;
}

int32_t linear_logprob_backward(sfx_stream* stream, const sfx_tensor* hidden, const sfx_tensor* w,
                                const int32_t* target, float temperature, const float* lse, const float* entropy,
                                const float* dlogprob, const float* dentropy, sfx_tensor* dhidden, sfx_tensor* dw) {
  SFX_TRY(check_head(hidden, w));
  SFX_REQUIRE_F32(dhidden, dw);
  SFX_REQUIRE(!dhidden || (unit_last(dhidden) && dhidden->stride[0] == dhidden->shape[1]),
              "linear_logprob: rows must be contiguous");
  SFX_REQUIRE(!dentropy || entropy, "linear_logprob: dentropy needs the entropy of the forward");
  Scratch scratch(stream);
  const int64_t n = hidden->shape[0], h = hidden->shape[1], V = w->shape[0];
  Chosen c;
  SFX_TRY(choose(scratch, hidden, target, V, &c));
  if (dhidden) SFX_TRY(fill_zero(stream, dhidden->data, n * h * (int64_t)sizeof(float)));
  const int64_t at_once = rows_at_once(V, c.count);
  HeadArguments a = {};
  a.logits = scratch.take<float>(at_once * V), a.vocabulary = V, a.inverse = inverse_temperature(temperature);
  a.saved_lse = lse, a.saved_entropy = entropy, a.dlogprob = dlogprob, a.dentropy = dentropy;
  float* const dh = dhidden ? scratch.take<float>(at_once * h) : nullptr;
  SFX_TRY(scratch.status());
  for (int64_t begin = 0; begin < c.count; begin += at_once) {
    const int64_t rows = std::min(at_once, c.count - begin);
    SFX_TRY(multiply_logits(stream, c.hidden + begin * h, h, rows, w, a.logits));
    a.row = c.row + begin, a.target = c.target + begin;
    SFX_TRY(SFX_LAUNCH(stream, logprob_backward_kernel, grid(rows), kRowThreads, 0, a));
    if (dhidden) {
      SFX_TRY(multiply(stream, {rows, h, V, matrix(a.logits, V, 1), matrix_of(w), dh, h, 1, false, false, nullptr}));
      SFX_TRY(scatter_rows(stream, dh, a.row, rows, h, floats(dhidden), h));
    }
    if (dw)
      SFX_TRY(multiply(stream, {V, h, rows, matrix(a.logits, 1, V), matrix(c.hidden + begin * h, h, 1), floats(dw),
                                dw->stride[0], dw->stride[1], true, false, nullptr}));
  }
  return SFX_OK;
}

}  // namespace sfx::cuda
