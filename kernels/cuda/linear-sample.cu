// Draws one token a row from softmax(hidden w^T / T), restricted to min-p, top-k and top-p; the log-probability is that
// of the whole distribution before any edit, by the functions of linear_logprob_forward. Greedy rows (T = 0) take the
// lowest id among the largest logits. A block has a row. What top-k and top-p keep is found without sorting: the order
// is by logit, then by id, and the last token that is kept by bisection over the bits of the logits, then over the ids.
#include <algorithm>

#include "../uniform.h"
#include "vocabulary.cuh"

namespace sfx::cuda {

namespace {

struct Edit {
  int32_t token;
  float before, factor, after;  // before, after: over the temperature
};
struct Draw {
  float inverse, top_p, min_p;
  int32_t top_k, greedy, alternatives;
  int64_t first_edit, edits, first_alternative;
  double uniform;
};

// Logits in ascending order, as bits.
SFX_DEVICE uint32_t ordered(float z) {
  const uint32_t bits = __float_as_uint(z);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

struct Row {
  const float* z;
  int64_t vocabulary;
  float largest, min_p;
  double* each;  // shared: [kRowThreads]
};

// The tokens that are kept: a logit above `bits`, or equal and an id up to `id`.
struct Kept {
  uint32_t bits;
  int64_t id;
};
SFX_DEVICE float weight_of(const Row& row, int64_t v) {
  const float w = expf(row.z[v] - row.largest);
  return w >= row.min_p ? w : 0.0f;  // the largest weighs 1
}
SFX_DEVICE bool keeps(const Kept& kept, const Row& row, int64_t v) {
  const uint32_t bits = ordered(row.z[v]);
  return bits > kept.bits || (bits == kept.bits && v <= kept.id);
}
// What the kept tokens weigh, or how many there are, within `outer`.
template <bool kCount>
SFX_DEVICE double amount(const Row& row, const Kept& outer, const Kept& kept) {
  double sum = 0;
  for (int64_t v = threadIdx.x; v < row.vocabulary; v += kRowThreads) {
    if (!keeps(outer, row, v) || !keeps(kept, row, v)) continue;
    const float w = weight_of(row, v);
    sum += kCount ? (w > 0.0f ? 1.0 : 0.0) : (double)w;
  }
  return block_sum(sum, row.each);
}
// The fewest tokens, in their order, within `outer` that amount to `enough`.
template <bool kCount>
SFX_DEVICE Kept restrict_row(const Row& row, const Kept& outer, double enough) {
  uint32_t low = 0, high = ordered(row.largest);  // the highest bits that are enough are in [low, high]
  while (low < high) {
    const uint32_t middle = high - (high - low) / 2;
    if (amount<kCount>(row, outer, {middle, row.vocabulary}) >= enough)
      low = middle;
    else
      high = middle - 1;
  }
  int64_t first = 0, last = row.vocabulary - 1;  // and the lowest id
  while (first < last) {
    const int64_t middle = first + (last - first) / 2;
    if (amount<kCount>(row, outer, {low, middle}) >= enough)
      last = middle;
    else
      first = middle + 1;
  }
  return {low, first};
}
// What both keep.
SFX_DEVICE Kept stricter(Kept a, Kept b) {
  if (a.bits != b.bits) return a.bits > b.bits ? a : b;
  return a.id < b.id ? a : b;
}

// The first kept id at which the weights, ascending in id, sum to more than `uniform` of their total.
SFX_DEVICE int32_t pick(const Row& row, const Kept& kept, double uniform) {
  const int64_t share = (row.vocabulary + kRowThreads - 1) / kRowThreads, begin = threadIdx.x * share,
                end = begin + share < row.vocabulary ? begin + share : row.vocabulary;
  double mine = 0;
  for (int64_t v = begin; v < end; v++) mine += keeps(kept, row, v) ? (double)weight_of(row, v) : 0.0;
  row.each[threadIdx.x] = mine;
  __syncthreads();
  double total = 0, before = 0;
  int owner = 0;
#pragma unroll 4
  for (int i = 0; i < kRowThreads; i++) total += row.each[i];
  const double threshold = uniform * total;
  double sum = 0;
#pragma unroll 4
  for (int i = 0; i < kRowThreads; i++) {
    if (row.each[i] > 0) owner = i, before = sum;
    sum += row.each[i];
    if (sum > threshold) break;
  }
  int32_t* const drawn = reinterpret_cast<int32_t*>(row.each + kRowThreads);
  if (owner == (int)threadIdx.x) {
    int64_t found = begin < row.vocabulary ? begin : 0;
    double at = before;
    for (int64_t v = begin; v < end; v++) {
      const double w = keeps(kept, row, v) ? (double)weight_of(row, v) : 0.0;
      if (w == 0) continue;
      at += w, found = v;
      if (at > threshold) break;
    }
    *drawn = (int32_t)found;
  }
  __syncthreads();
  return *drawn;
}

struct SampleArguments {
  float *logits, *edited;  // [rows, V]; edited: NULL where no row has edits
  int64_t vocabulary;
  const Draw* draws;
  const Edit* edits;
  int32_t *token, *alternative;
  float *logprob, *alternative_logprob;
};

SFX_DEVICE Best largest_of(const float* z, int64_t vocabulary, Best after, Best* each) {
  Best best = {0.0f, -1};
  for (int64_t v = threadIdx.x; v < vocabulary; v += kRowThreads)
    if (z[v] < after.value || (z[v] == after.value && (int)v > after.id)) best = better(best, {z[v], (int)v});
  return block_best(best, each);
}

constexpr size_t kSampleBytes = (kRowThreads + 1) * sizeof(double);

__global__ void __launch_bounds__(kRowThreads, 2) sample_kernel(const SampleArguments a) {
  const Draw draw = a.draws[blockIdx.x];
  unsigned char* const shared = shared_memory();
  float* z = a.logits + blockIdx.x * a.vocabulary;
  scale_row(z, a.vocabulary, draw.inverse);
  const float* const raw = z;
  const float lse = sum_row(z, a.vocabulary, reinterpret_cast<float*>(shared)).lse();
  const Best all = {SFX_INFINITE, -1};
  Best last = all;
  for (int i = 0; i < draw.alternatives; i++) {
    last = largest_of(raw, a.vocabulary, last, reinterpret_cast<Best*>(shared));
    if (threadIdx.x != 0) continue;
    a.alternative[draw.first_alternative + i] = last.id;
    a.alternative_logprob[draw.first_alternative + i] = last.value - lse;
  }
  if (draw.edits > 0) {
    z = a.edited + blockIdx.x * a.vocabulary;
    for (int64_t v = threadIdx.x; v < a.vocabulary; v += kRowThreads) z[v] = raw[v];
    __syncthreads();
    for (int64_t i = threadIdx.x; i < draw.edits; i += kRowThreads) {  // one a token
      const Edit e = a.edits[draw.first_edit + i];
      const float x = z[e.token] + e.before;
      z[e.token] = (x > 0.0f ? x / e.factor : x * e.factor) + e.after;
    }
    __syncthreads();
  }
  const Best top = largest_of(z, a.vocabulary, all, reinterpret_cast<Best*>(shared));
  int32_t token = top.id < 0 ? 0 : top.id;  // nothing is comparable: the logits are not finite
  if (!draw.greedy && top.id >= 0) {
    const Row row = {z, a.vocabulary, top.value, draw.min_p, reinterpret_cast<double*>(shared)};
    Kept kept = {0, a.vocabulary};
    if (draw.top_k > 0 && amount<true>(row, kept, kept) > draw.top_k) kept = restrict_row<true>(row, kept, draw.top_k);
    if (draw.top_p < 1.0f)
      kept = stricter(kept, restrict_row<false>(row, kept, draw.top_p * amount<false>(row, kept, kept)));
    token = pick(row, kept, draw.uniform);
  }
  if (threadIdx.x != 0) return;
  a.token[blockIdx.x] = token;
  if (a.logprob) a.logprob[blockIdx.x] = raw[token] - lse;
}

}  // namespace

int32_t linear_sample(sfx_stream* stream, const sfx_tensor* hidden, const sfx_tensor* w,
                      const sfx_sample_options* options, int32_t* token, float* logprob) {
  SFX_REQUIRE_F32(hidden);
  SFX_REQUIRE(hidden->shape[1] == w->shape[1] && w->shape[0] > 0, "linear_sample: hidden [n,h] and w [V,h] disagree");
  SFX_REQUIRE(unit_last(hidden), "linear_sample: rows must be contiguous");
  const int64_t n = hidden->shape[0], V = w->shape[0], at_once = rows_at_once(V, n);
  std::vector<Draw> draws;
  std::vector<Edit> edits;
  int64_t alternatives = 0;
  for (int64_t i = 0; i < n; i++) {
    const sfx_sample_options& o = options[i];
    const float inverse = inverse_temperature(o.temperature);
    draws.push_back({inverse, o.top_p, o.min_p, o.top_k, !(o.temperature > 0.0f), o.alternatives, (int64_t)edits.size(),
                     o.edits, alternatives, uniform(o)});
    for (int64_t e = 0; e < o.edits; e++)
      edits.push_back({o.edit[e].token, o.edit[e].before * inverse, o.edit[e].factor, o.edit[e].after * inverse});
    alternatives += o.alternatives;
  }
  Scratch scratch(stream);
  SampleArguments a = {};
  a.logits = scratch.take<float>(at_once * V), a.vocabulary = V, a.draws = scratch.input(draws);
  a.edits = scratch.input(edits), a.edited = edits.empty() ? nullptr : scratch.take<float>(at_once * V);
  a.alternative = scratch.take<int32_t>(alternatives), a.alternative_logprob = scratch.take<float>(alternatives);
  int32_t* const tokens = scratch.take<int32_t>(n);
  float* const logprobs = scratch.take<float>(n);
  SFX_TRY(scratch.status());
  for (int64_t begin = 0; begin < n; begin += at_once) {
    const int64_t rows = std::min(at_once, n - begin);
    SFX_TRY(multiply_logits(stream, floats(hidden) + begin * hidden->stride[0], hidden->stride[0], rows, w, a.logits));
    a.token = tokens + begin, a.logprob = logprobs + begin;
    SFX_TRY(SFX_LAUNCH(stream, sample_kernel, grid(rows), kRowThreads, kSampleBytes, a));
    a.draws += rows;
  }
  SFX_TRY(copy(stream, token, tokens, n * (int64_t)sizeof(int32_t)));
  if (logprob) SFX_TRY(copy(stream, logprob, logprobs, n * (int64_t)sizeof(float)));
  for (int64_t i = 0; i < n; i++) {
    const sfx_sample_options& o = options[i];
    const int64_t from = draws[(size_t)i].first_alternative;
    if (o.alternatives <= 0) continue;
    SFX_TRY(copy(stream, o.alternative, a.alternative + from, o.alternatives * (int64_t)sizeof(int32_t)));
    SFX_TRY(copy(stream, o.alternative_logprob, a.alternative_logprob + from, o.alternatives * (int64_t)sizeof(float)));
  }
  return SFX_OK;
}

}  // namespace sfx::cuda
