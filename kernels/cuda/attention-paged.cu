// Attention over a paged cache: each row attends its own sequence up to its own position. A block has one row, one key
// head and 256 keys (a split, so that a long context fills the machine): scores of all query heads of the group, a
// thread a key, then outputs, a thread a column; what the splits found is put together, with the sink, by a second
// kernel. What a row gets depends on its own keys alone. float32 throughout. Bytes: every visible key and value once a
// row.
#include <algorithm>

#include "attention.cuh"
#include "operators.h"
#include "reduce.cuh"

namespace sfx::cuda {

namespace {

constexpr int kThreads = 128, kSplit = 256, kWarps = kThreads / kWarpSize;
constexpr int kMostGroup = 64, kTogether = 8;  // query heads of a key head; of which scores are computed at once

struct PagedArguments {
  const float *q, *k, *v;  // k, v: of the rows that kv_write writes
  float *keys, *values, *out;
  int64_t q_row, q_head, k_row, k_head, v_row, v_head, out_row, out_head;
  const int32_t *sequence, *position, *pages;
  int64_t max_pages;
  int32_t tokens, kv_heads, group, depth, splits;
  View view;
  const float* sink;
  float *part, *largest, *sum;  // [rows, heads, splits, depth], [rows, heads, splits]
};

SFX_DEVICE int64_t page_of(const PagedArguments& a, int64_t row, int64_t position) {
  return a.pages[a.sequence[row] * a.max_pages + position / a.tokens];
}

__global__ void __launch_bounds__(kThreads) kv_write_kernel(const PagedArguments a) {
  const int64_t row = blockIdx.x, at = a.position[row], page = page_of(a, row, at), h = blockIdx.y;
  float* const keys = a.keys + (page * a.kv_heads + h) * a.depth * a.tokens + at % a.tokens;
  float* const values = a.values + ((page * a.kv_heads + h) * a.tokens + at % a.tokens) * a.depth;
  for (int d = threadIdx.x; d < a.depth; d += kThreads) {
    keys[(int64_t)d * a.tokens] = a.k[row * a.k_row + h * a.k_head + d];
    values[d] = a.v[row * a.v_row + h * a.v_head + d];
  }
}

__global__ void __launch_bounds__(kThreads, 4) attention_split_kernel(const PagedArguments a) {
  float* const q = reinterpret_cast<float*>(shared_memory());  // [group][depth]
  float* const score = q + a.group * a.depth;                  // [group][kSplit]
  const int64_t row = blockIdx.x, h = blockIdx.y, split = blockIdx.z;
  const int t = a.position[row], key0 = (int)split * kSplit, end = smaller(key0 + kSplit, t + 1);
  const int low = lowest(a.view, 0, t), lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
  const int64_t head0 = (row * a.kv_heads + h) * a.group;
  // Whether any key of the split is seen.
  const bool seen = key0 <= t && (key0 < a.view.prefix || low < end);
  if (!seen) {
    for (int g = threadIdx.x; g < a.group; g += kThreads) a.largest[(head0 + g) * a.splits + split] = -SFX_INFINITE;
    return;
  }
  for (int i = threadIdx.x; i < a.group * a.depth; i += kThreads)
    q[i] = a.q[row * a.q_row + (h * a.group + i / a.depth) * a.q_head + i % a.depth];
  __syncthreads();
  for (int i = threadIdx.x; i < kSplit; i += kThreads) {
    const int key = key0 + i;
    const bool visible = key < end && sees(t, key, low, a.view.prefix);
    const float* const from =
        visible ? a.keys + (page_of(a, row, key) * a.kv_heads + h) * a.depth * a.tokens + key % a.tokens : nullptr;
    for (int g0 = 0; g0 < a.group; g0 += kTogether) {
      const int heads = smaller(kTogether, a.group - g0);
      float sum[kTogether] = {};
      for (int d = 0; visible && d < a.depth; d++) {
        const float x = from[(int64_t)d * a.tokens];
#pragma unroll
        for (int g = 0; g < kTogether; g++)
          if (g < heads) sum[g] = fmaf(q[(g0 + g) * a.depth + d], x, sum[g]);
      }
#pragma unroll
      for (int g = 0; g < kTogether; g++) {
        if (g >= heads) continue;
        float slope;
        const float alibi = a.view.slopes ? a.view.slopes[h * a.group + g0 + g] : 0.0f;
        score[(g0 + g) * kSplit + i] =
            visible ? varied_score(sum[g] * a.view.scale, a.view, alibi, t - key, &slope) : -SFX_INFINITE;
      }
    }
  }
  __syncthreads();
  for (int g = warp; g < a.group; g += kWarps) {
    float top = -SFX_INFINITE, all = 0.0f;
    for (int i = lane; i < kSplit; i += kWarpSize) top = fmaxf(top, score[g * kSplit + i]);
    top = warp_max(top);
    for (int i = lane; i < kSplit; i += kWarpSize) {
      const float p = expf(score[g * kSplit + i] - top);
      score[g * kSplit + i] = p, all += p;
    }
    all = warp_sum(all);
    if (lane == 0) a.largest[(head0 + g) * a.splits + split] = top, a.sum[(head0 + g) * a.splits + split] = all;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < a.group * a.depth; i += kThreads) {
    const int g = i / a.depth, d = i % a.depth;
    float sum = 0.0f;
    for (int key = key0; key < end; key++) {
      // What nobody sees may hold anything.
      if (!sees(t, key, low, a.view.prefix)) continue;
      const float* const from = a.values + (page_of(a, row, key) * a.kv_heads + h) * a.tokens * a.depth;
      sum = fmaf(score[g * kSplit + key - key0], from[(int64_t)(key % a.tokens) * a.depth + d], sum);
    }
    a.part[((head0 + g) * a.splits + split) * a.depth + d] = sum;
  }
}

// A warp a row and head.
__global__ void __launch_bounds__(kThreads) attention_join_kernel(const PagedArguments a, int64_t count) {
  const int lane = threadIdx.x % kWarpSize;
  const int64_t at = (int64_t)blockIdx.x * kWarps + threadIdx.x / kWarpSize;
  if (at >= count) return;
  const int heads = a.kv_heads * a.group;
  const int64_t row = at / heads, head = at % heads;
  const int splits = a.position[row] / kSplit + 1;
  const float sink = a.sink ? a.sink[head] : -SFX_INFINITE;
  float top = sink;
  for (int s = 0; s < splits; s++) top = fmaxf(top, a.largest[at * a.splits + s]);
  float all = sink == -SFX_INFINITE ? 0.0f : sink == top ? 1.0f : expf(sink - top);
  for (int s = 0; s < splits; s++) {
    const float largest = a.largest[at * a.splits + s];
    if (largest > -SFX_INFINITE) all = fmaf(expf(largest - top), a.sum[at * a.splits + s], all);
  }
  for (int d = lane; d < a.depth; d += kWarpSize) {
    float sum = 0.0f;
    for (int s = 0; s < splits; s++) {
      const float largest = a.largest[at * a.splits + s];
      if (largest > -SFX_INFINITE) sum = fmaf(expf(largest - top), a.part[(at * a.splits + s) * a.depth + d], sum);
    }
    a.out[row * a.out_row + head * a.out_head + d] = all > 0.0f ? sum / all : 0.0f;
  }
}

// What both entry points check, and where the rows lie.
int32_t prepare(Scratch& scratch, const sfx_paged* paged, PagedArguments* a) {
  SFX_REQUIRE(paged->page_tokens == 16 || paged->page_tokens == 32 || paged->page_tokens == 64,
              "attention: page_tokens must be 16, 32 or 64");
  a->keys = static_cast<float*>(paged->keys), a->values = static_cast<float*>(paged->values);
  a->tokens = (int32_t)paged->page_tokens, a->max_pages = paged->max_pages;
  a->sequence = scratch.input(paged->sequence, paged->rows), a->position = scratch.input(paged->position, paged->rows);
  a->pages = scratch.input(paged->page_table, paged->sequences * paged->max_pages);
  return scratch.status();
}

}  // namespace

int32_t kv_write(sfx_stream* stream, const sfx_tensor* k, const sfx_tensor* v, const sfx_paged* paged) {
  SFX_REQUIRE_F32(k, v);
  SFX_REQUIRE(unit_last(k) && unit_last(v), "kv_write: heads must be contiguous in D");
  Scratch scratch(stream);
  PagedArguments a = {};
  SFX_TRY(prepare(scratch, paged, &a));
  a.k = floats(k), a.k_row = k->stride[0], a.k_head = k->stride[1], a.kv_heads = (int32_t)k->shape[1];
  a.v = floats(v), a.v_row = v->stride[0], a.v_head = v->stride[1], a.depth = (int32_t)k->shape[2];
  return SFX_LAUNCH(stream, kv_write_kernel, grid(paged->rows, a.kv_heads), kThreads, 0, a);
}

int32_t attention_paged(sfx_stream* stream, const sfx_tensor* q, const float* sink, const sfx_paged* paged,
                        const sfx_attention_mask* mask, sfx_tensor* out) {
  SFX_REQUIRE_F32(q, out);
  const int64_t rows = paged->rows, heads = q->shape[1], kv_heads = paged->kv_heads, depth = q->shape[2];
  SFX_REQUIRE(kv_heads > 0 && heads % kv_heads == 0 && heads / kv_heads <= kMostGroup,
              "attention: query heads must be a multiple of key heads, at most 64 a group");
  SFX_REQUIRE(unit_last(q) && unit_last(out), "attention: heads must be contiguous in D");
  const sfx_attention_variant none = {}, &variant = mask->variant ? *mask->variant : none;
  SFX_REQUIRE(!variant.document_start && variant.sink_function == SFX_SINK_SIGMOID,
              "attention_paged: documents and other sink functions are for packed sequences");
  if (rows == 0) return SFX_OK;
  Scratch scratch(stream);
  PagedArguments a = {};
  SFX_TRY(prepare(scratch, paged, &a));
  a.q = floats(q), a.q_row = q->stride[0], a.q_head = q->stride[1];
  a.out = floats(out), a.out_row = out->stride[0], a.out_head = out->stride[1];
  a.kv_heads = (int32_t)kv_heads, a.group = (int32_t)(heads / kv_heads), a.depth = (int32_t)depth;
  a.view.window = mask->window < 0 ? -1 : (int32_t)std::min<int64_t>(mask->window, INT32_MAX);
  a.view.prefix = (int32_t)std::clamp<int64_t>(mask->prefix, 0, INT32_MAX);
  a.view.scale = mask->scale, a.view.softcap = variant.softcap;
  a.view.slopes = scratch.input(variant.slopes, heads), a.sink = scratch.input(sink, heads);
  a.splits = (int32_t)pieces(paged->longest, kSplit);
  a.largest = scratch.take<float>(rows * heads * a.splits), a.sum = scratch.take<float>(rows * heads * a.splits);
  a.part = scratch.take<float>(rows * heads * a.splits * depth);
  SFX_TRY(scratch.status());
  const size_t bytes = (size_t)a.group * (size_t)(depth + kSplit) * sizeof(float);
  SFX_TRY(SFX_LAUNCH(stream, attention_split_kernel, grid(rows, kv_heads, a.splits), kThreads, bytes, a));
  return SFX_LAUNCH(stream, attention_join_kernel, grid(pieces(rows * heads, kWarps)), kThreads, 0, a, rows * heads);
}

}  // namespace sfx::cuda
