// Packed sink attention, forward. Each warp keeps 16 queries in registers and walks the keys in tiles, K and V in two
// stages: while one is multiplied, cp.async brings the next. Online softmax in units of log 2, seeded with the sink (m
// = s, l = 1): one lane of the four that share a row carries the 1, since l is summed over them at the end. P is
// rounded to the storage type for the second product; all sums are float32.
//
// Work: 4 D operations a visible pair. Bytes: q, k, v, out once, and k, v again for each tile of queries that sees
// them.
#include "attention-float.cuh"
#include "operators.h"

namespace sfx::cuda {

namespace {

constexpr int kThreads = 128;

struct ForwardArguments {
  Heads q, k, v, out;
  const float* sink;
  float* lse;
  const Tile* tiles;
  int32_t heads, group, depth, function;
  View view;
};

template <int kDepth>
struct ForwardShape {
  static constexpr int kKeys = kDepth > 80 ? 32 : 64;
  static constexpr int kStride = kDepth + 8;
  static constexpr bool kKeepQ = kDepth <= 128;  // in registers
  static constexpr int kBytes = (kTileRows + 4 * kKeys) * kStride * 2;
};

template <class T, int kDepth, bool kVaried>
__global__ void __launch_bounds__(kThreads, kDepth <= 96 ? 3 : 2) attention_forward_kernel(const ForwardArguments a) {
  using Shape = ForwardShape<kDepth>;
  constexpr int kKeys = Shape::kKeys, kStride = Shape::kStride;
  T* const shared_q = reinterpret_cast<T*>(shared_memory());
  T* const shared_k = shared_q + kTileRows * kStride;
  T* const shared_v = shared_k + 2 * kKeys * kStride;

  const QueryBlock<T, kDepth, kKeys, kThreads> block(a);
  const Tile& tile = block.tile;
  const int head = block.head, row0 = block.row0, last = block.last, prefix = block.prefix;
  const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize, g = lane / 4, t = lane % 4;
  const auto load_keys = [&](int key0, int stage) {
    block.load_keys(shared_k + stage * kKeys * kStride, a.k, key0, a.depth);
    block.load_keys(shared_v + stage * kKeys * kStride, a.v, key0, a.depth);
  };

  block.load_queries(shared_q, a.q, a.depth);
  int key0 = block.next(0);
  load_keys(key0, 0);
  copy_async_commit();

  const float scale = a.view.scale * kLog2E;  // to units of log 2
  const float alibi = kVaried && a.view.slopes ? a.view.slopes[head] : 0.0f;
  const bool seeded = a.sink && a.function == SFX_SINK_SIGMOID && a.sink[head] > -SFX_INFINITE;
  const float seed = seeded ? in_log2(a.sink[head]) : -SFX_INFINITE;
  float largest[2] = {seed, seed}, sum[2], out[kDepth / 8][4];
  sum[0] = sum[1] = seeded && t == 0 ? 1.0f : 0.0f;
  clear(out);
  int row[2], low[2];
#pragma unroll
  for (int r = 0; r < 2; r++) {
    row[r] = row0 + warp * 16 + g + 8 * r;
    low[r] = lowest(a.view, tile.begin, smaller(row[r], last));
  }
  uint32_t kept[Shape::kKeepQ ? kDepth / 16 : 1][4];
  T* const my_q = shared_q + warp * 16 * kStride;

  for (int stage = 0; key0 <= last; stage ^= 1) {
    copy_async_wait<0>();
    __syncthreads();  // this stage is there for all, and nobody reads the other one any more
    if (Shape::kKeepQ && stage == 0) {
#pragma unroll
      for (int i = 0; i < kDepth / 16; i++)
        if (Shape::kKeepQ) load_a<kDepth>(kept[i], my_q, 16 * i);
    }
    const int next = block.next(key0 + kKeys);
    if (next <= last) load_keys(next, stage ^ 1);
    copy_async_commit();

    float score[kKeys / 8][4];
    const T* const tile_k = shared_k + stage * kKeys * kStride;
    if constexpr (Shape::kKeepQ) {
      clear(score);
#pragma unroll
      for (int i = 0; i < kDepth / 16; i++)
#pragma unroll
        for (int n = 0; n < kKeys / 16; n++) {
          uint32_t b[4];
          load_b_rows<kDepth>(b, tile_k + 16 * n * kStride, 16 * i);
          multiply_add(T{}, score[2 * n], kept[i], b[0], b[1]);
          multiply_add(T{}, score[2 * n + 1], kept[i], b[2], b[3]);
        }
    } else {
      multiply_tiles<kDepth, kKeys>(score, my_q, tile_k);
    }

    if (kVaried) {
#pragma unroll
      for (int j = 0; j < kKeys / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
          const int key = key0 + 8 * j + 2 * t + e % 2;
          float slope;
          score[j][e] = kLog2E * varied_score(score[j][e] * a.view.scale, a.view, alibi, row[e / 2] - key, &slope);
        }
    }
    if (!block.whole(key0)) {
#pragma unroll
      for (int j = 0; j < kKeys / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
          if (!sees(row[e / 2], key0 + 8 * j + 2 * t + e % 2, low[e / 2], prefix)) score[j][e] = -SFX_INFINITE;
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
      float top = -SFX_INFINITE;
#pragma unroll
      for (int j = 0; j < kKeys / 8; j++) top = fmaxf(top, fmaxf(score[j][2 * r], score[j][2 * r + 1]));
      top = fmaxf(top, __shfl_xor_sync(kWholeWarp, top, 1));
      top = fmaxf(top, __shfl_xor_sync(kWholeWarp, top, 2));
      const float found = fmaxf(largest[r], kVaried ? top : top * scale);
      const float from = found == -SFX_INFINITE ? 0.0f : found;  // nothing seen yet: all weights are 0
      const float rescale = exp2_fast(largest[r] - from);
      largest[r] = found;
      float all = 0.0f;
#pragma unroll
      for (int j = 0; j < kKeys / 8; j++)
#pragma unroll
        for (int e = 2 * r; e < 2 * r + 2; e++) {
          score[j][e] = exp2_fast(kVaried ? score[j][e] - from : fmaf(score[j][e], scale, -from));
          all += score[j][e];
        }
      sum[r] = sum[r] * rescale + all;
#pragma unroll
      for (int j = 0; j < kDepth / 8; j++) out[j][2 * r] *= rescale, out[j][2 * r + 1] *= rescale;
    }
    accumulate<kDepth, kKeys, kDepth>(out, score, shared_v + stage * kKeys * kStride);
    key0 = next;
  }

  float factor[2];
#pragma unroll
  for (int r = 0; r < 2; r++) {
    sum[r] += __shfl_xor_sync(kWholeWarp, sum[r], 1);
    sum[r] += __shfl_xor_sync(kWholeWarp, sum[r], 2);
    factor[r] = sum[r] > 0.0f ? 1.0f / sum[r] : 0.0f;
    // Where the sink is the largest its own value is taken: in units of log 2 it may have been cut off.
    const float base = seeded && largest[r] == seed ? a.sink[head] : largest[r] * kLn2;
    const float lse = sum[r] > 0.0f ? base + logf(sum[r]) : -SFX_INFINITE;
    if (a.sink && a.function != SFX_SINK_SIGMOID) factor[r] *= sink_terms(a.function, lse, a.sink[head]).f;
    if (a.lse && t == 0 && row[r] <= last) a.lse[(int64_t)(tile.begin + row[r]) * a.heads + head] = lse;
  }
  __syncwarp();  // the warp's rows of q were read by all its lanes
  store_rows<kDepth, kDepth>(out, factor, a.out, tile.begin * a.out.row + head * a.out.head, row0 + warp * 16, last + 1,
                             0, a.depth, my_q);
}

}  // namespace

int32_t attention_forward(sfx_stream* stream, const sfx_tensor* q, const sfx_tensor* k, const sfx_tensor* v,
                          const float* sink, const int32_t* cu_seqlens, int64_t segments,
                          const sfx_attention_mask* mask, sfx_tensor* out, float* lse) {
  Scratch scratch(stream);
  AttentionCall c;
  SFX_TRY(prepare_attention(stream, &scratch, q, k, sink, cu_seqlens, segments, mask, &c));
  ForwardArguments a = {};
  SFX_TRY(readable(c, q, &a.q));
  SFX_TRY(readable(c, k, &a.k));
  SFX_TRY(readable(c, v, &a.v));
  SFX_TRY(writable(c, out, &a.out));
  SFX_REQUIRE(!lse || is_device_memory(lse), "attention: results go to device memory");
  if (c.dtype == SFX_F32) {
    SFX_TRY(float_forward(stream, c, a.q, a.k, a.v, a.out, lse));
    return finish(c, a.out, out);
  }
  a.sink = c.sink, a.lse = lse, a.tiles = tiles_of_queries(c), a.view = c.view, a.function = c.function;
  a.heads = (int32_t)c.heads, a.group = (int32_t)(c.heads / c.kv_heads), a.depth = (int32_t)c.depth;
  // A copy has its zeros beyond D.
  SFX_TRY(scratch.status());
  const dim3 blocks = grid((int64_t)c.tiles.size(), c.heads);
  SFX_TRY(with_shape(c, [&](auto type, auto size) {
    using T = decltype(type);
    constexpr int kDepth = decltype(size)::value;
    const auto start = [&](auto kernel) {
      return launch(stream, "attention_forward", kernel, blocks, kThreads, ForwardShape<kDepth>::kBytes, a);
    };
    return c.varied ? start(attention_forward_kernel<T, kDepth, true>)
                    : start(attention_forward_kernel<T, kDepth, false>);
  }));
  return finish(c, a.out, out);
}

}  // namespace sfx::cuda
