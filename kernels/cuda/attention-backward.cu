// Packed sink attention, backward, without any n x n array and without atomics: the same bits on every run. With lse' =
// lse - log f (of sink function f), P = exp(S - lse'), delta = rowsum(dO O) as the sink function changes it:
//   dV = P^T dO;  dS = P (dO V^T - delta);  dQ = scale dS K;  dK = scale dS^T Q;  ds = sum (df/ds / f) rowsum(dO O)
// Four kernels: rows (delta, lse' and partial sums of ds), their sum in a fixed order, keys (a block keeps dK and dV of
// 64 keys and walks the queries of its group that see them) and queries (a block keeps dQ of 64 queries and walks the
// keys). P and dS come out of one product in the layout that the next one takes, so they never leave registers: the
// kernel of the keys computes S^T. Work: 14 D operations a visible pair, of which 4 are the second computing of S, dP.
#include "attention-float.cuh"
#include "operators.h"
#include "reduce.cuh"

namespace sfx::cuda {

namespace {

// ---- rows: one warp a row, then a sum over each 64 rows

constexpr int kRowThreads = 128, kRowsTogether = 64;

struct RowArguments {
  const void *out, *dout;
  int64_t out_row, out_head, dout_row, dout_head;
  const float *lse, *sink, *dlse;
  float *lse2, *delta, *partial;  // [heads][n], [heads][n], [heads][chunks]
  int64_t n, chunks;
  int32_t heads, depth, function;
};

template <class T>
__global__ void __launch_bounds__(kRowThreads) attention_rows_kernel(const RowArguments a) {
  const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize, head = blockIdx.y;
  const int64_t begin = (int64_t)blockIdx.x * kRowsTogether;
  const float sink = a.sink ? a.sink[head] : -SFX_INFINITE;
  float dsink = 0.0f;
  for (int i = warp; i < kRowsTogether; i += kRowThreads / kWarpSize) {
    const int64_t row = begin + i;
    if (row >= a.n) break;
    const T* const o = static_cast<const T*>(a.out) + row * a.out_row + head * a.out_head;
    const T* const d = static_cast<const T*>(a.dout) + row * a.dout_row + head * a.dout_head;
    float sum = 0.0f;
    for (int j = lane; j < a.depth; j += kWarpSize) sum = fmaf(widen(o[j]), widen(d[j]), sum);
    sum = warp_sum(sum);
    const float lse = a.lse[row * a.heads + head], g = a.dlse ? a.dlse[row * a.heads + head] : 0.0f;
    float used = lse, delta = sum - g;
    if (a.function == SFX_SINK_SIGMOID) {
      // From the difference in natural units, or a large sink would lose the bits that count.
      const float share = sink == -SFX_INFINITE ? 0.0f : sink == lse ? 1.0f : expf(sink - lse);
      dsink -= share * delta;
    } else {
      const SinkTerms terms = sink_terms(a.function, lse, sink);
      dsink = fmaf(terms.sink, sum, dsink);
      used = lse - terms.log_f;
      delta = sum * terms.ratio - g / terms.f;
    }
    if (lane == 0) {
      a.lse2[head * a.n + row] = in_log2(used);
      a.delta[head * a.n + row] = delta;
    }
  }
  float* const shared = reinterpret_cast<float*>(shared_memory());
  if (lane == 0) shared[warp] = dsink;
  __syncthreads();
  if (threadIdx.x == 0) {
    float all = 0.0f;
    for (int w = 0; w < kRowThreads / kWarpSize; w++) all += shared[w];
    a.partial[head * a.chunks + blockIdx.x] = all;
  }
}

// dsink[head] += the chunks' sums; a warp a head.
__global__ void __launch_bounds__(kWarpSize)
    attention_dsink_kernel(const float* partial, int64_t chunks, float* dsink) {
  float sum = 0.0f;
  for (int64_t i = threadIdx.x; i < chunks; i += kWarpSize) sum += partial[blockIdx.x * chunks + i];
  sum = warp_sum(sum);
  if (threadIdx.x == 0) dsink[blockIdx.x] += sum;
}

struct BackwardArguments {
  Heads q, k, v, dout, dq, dk, dv;
  const float *lse2, *delta;  // [heads][n]
  const Tile* tiles;
  int64_t n;
  int32_t group, depth;
  View view;
};

// P of one score, and what dS is besides P (dP - delta).
template <bool kVaried>
SFX_DEVICE float weight(float product, float scale2, float lse2, const View& view, float alibi, int distance,
                        float* slope) {
  if (!kVaried) return exp2_fast(fmaf(product, scale2, -lse2));
  return exp2_fast(kLog2E * varied_score(product * view.scale, view, alibi, distance, slope) - lse2);
}

// ---- keys: dK and dV

template <int kDepth>
struct KeysShape {
  static constexpr int kHalves = kDepth > 128 ? 2 : 1;  // warps that share 16 keys, each with its part of the columns
  static constexpr int kThreads = 128 * kHalves;
  static constexpr int kQueries = kDepth > 64 ? 32 : 64;
  static constexpr int kStride = kDepth + 8;
  static constexpr int kColumns = kDepth / kHalves;
  static constexpr int kBytes = (2 * kTileRows + 4 * kQueries) * kStride * 2 + 4 * kQueries * 4;
};

template <class T, int kDepth, bool kVaried>
__global__ void __launch_bounds__(KeysShape<kDepth>::kThreads) attention_keys_kernel(const BackwardArguments a) {
  using Shape = KeysShape<kDepth>;
  constexpr int kQueries = Shape::kQueries, kStride = Shape::kStride, kThreads = Shape::kThreads,
                kColumns = Shape::kColumns;
  T* const shared_k = reinterpret_cast<T*>(shared_memory());
  T* const shared_v = shared_k + kTileRows * kStride;
  T* const shared_q = shared_v + kTileRows * kStride;                                       // two stages
  T* const shared_do = shared_q + 2 * kQueries * kStride;                                   // two stages
  float* const shared_lse2 = reinterpret_cast<float*>(shared_do + 2 * kQueries * kStride);  // two stages
  float* const shared_delta = shared_lse2 + 2 * kQueries;

  const Tile tile = a.tiles[blockIdx.x];
  const int kv_head = blockIdx.y;
  const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize, g = lane / 4, t = lane % 4;
  const int my_keys = warp % 4 * 16, column = warp / 4 * kColumns;
  const int key0 = tile.first, last = smaller(key0 + kTileRows, tile.length) - 1;
  const int prefix = a.view.prefix;
  const auto key_there = [=](int key) { return key <= last; };
  load_rows<kTileRows, kDepth, kThreads>(shared_k,
                                         static_cast<const T*>(a.k.data) + tile.begin * a.k.row + kv_head * a.k.head,
                                         a.k.row, key0, a.depth, key_there);
  load_rows<kTileRows, kDepth, kThreads>(shared_v,
                                         static_cast<const T*>(a.v.data) + tile.begin * a.v.row + kv_head * a.v.head,
                                         a.v.row, key0, a.depth, key_there);

  // The walk: for each query head of the group the queries from the first key on, until a window is past the last key.
  const int first_query = key0 / kQueries * kQueries;
  const auto walk_ends = [&](int query0) {
    return query0 >= tile.length || (key0 >= prefix && lowest(a.view, tile.begin, query0) > last);
  };
  const auto load_queries = [&](int head, int query0, int stage) {
    const auto there = [&](int r) { return r < tile.length; };
    load_rows<kQueries, kDepth, kThreads>(shared_q + stage * kQueries * kStride,
                                          static_cast<const T*>(a.q.data) + tile.begin * a.q.row + head * a.q.head,
                                          a.q.row, query0, a.depth, there);
    load_rows<kQueries, kDepth, kThreads>(
        shared_do + stage * kQueries * kStride,
        static_cast<const T*>(a.dout.data) + tile.begin * a.dout.row + head * a.dout.head, a.dout.row, query0, a.depth,
        there);
    if ((int)threadIdx.x < kQueries) {
      const int r = query0 + threadIdx.x;
      const int64_t at = head * a.n + tile.begin + r;
      shared_lse2[stage * kQueries + threadIdx.x] = r < tile.length ? a.lse2[at] : kMostLog2;  // weighs nothing
      shared_delta[stage * kQueries + threadIdx.x] = r < tile.length ? a.delta[at] : 0.0f;
    }
  };

  float dk[kColumns / 8][4], dv[kColumns / 8][4];
  clear(dk), clear(dv);
  const float scale2 = a.view.scale * kLog2E;
  int member = 0, query0 = first_query;
  load_queries(kv_head * a.group, query0, 0);
  copy_async_commit();
  for (int stage = 0; member < a.group; stage ^= 1) {
    copy_async_wait<0>();
    __syncthreads();  // this stage is there for all, and nobody reads the other one any more
    int next_member = member, next_query = query0 + kQueries;
    if (walk_ends(next_query)) next_member++, next_query = first_query;
    if (next_member < a.group) load_queries(kv_head * a.group + next_member, next_query, stage ^ 1);
    copy_async_commit();

    const T* const tile_q = shared_q + stage * kQueries * kStride;
    const T* const tile_do = shared_do + stage * kQueries * kStride;
    const float alibi = kVaried && a.view.slopes ? a.view.slopes[kv_head * a.group + member] : 0.0f;
    float p[kQueries / 8][4], slope[kVaried ? kQueries / 8 : 1][4];
    multiply_tiles<kDepth, kQueries>(p, shared_k + my_keys * kStride, tile_q);  // rows are keys, columns queries
    const int last_query = smaller(query0 + kQueries, tile.length) - 1;
    const bool whole = last <= query0 && last == key0 + kTileRows - 1 &&
                       (lowest(a.view, tile.begin, last_query) <= key0 || last < prefix);
#pragma unroll
    for (int j = 0; j < kQueries / 8; j++)
#pragma unroll
      for (int c = 0; c < 2; c++) {
        const int i = 8 * j + 2 * t + c, query = query0 + i;
        const float lse2 = shared_lse2[stage * kQueries + i];
        const int low = whole ? 0 : lowest(a.view, tile.begin, smaller(query, last_query));
#pragma unroll
        for (int r = 0; r < 2; r++) {
          const int key = key0 + my_keys + g + 8 * r, e = 2 * r + c;
          const float w =
              weight<kVaried>(p[j][e], scale2, lse2, a.view, alibi, query - key, &slope[kVaried ? j : 0][e]);
          p[j][e] = whole || (key <= last && sees(query, key, low, prefix)) ? w : 0.0f;
        }
      }
    accumulate<kDepth, kQueries, kColumns>(dv, p, tile_do + column);

    float ds[kQueries / 8][4];
    multiply_tiles<kDepth, kQueries>(ds, shared_v + my_keys * kStride, tile_do);
#pragma unroll
    for (int j = 0; j < kQueries / 8; j++)
#pragma unroll
      for (int c = 0; c < 2; c++) {
        const float delta = shared_delta[stage * kQueries + 8 * j + 2 * t + c];
#pragma unroll
        for (int e = c; e < 4; e += 2) {
          ds[j][e] = p[j][e] * (ds[j][e] - delta);
          if (kVaried) ds[j][e] *= slope[kVaried ? j : 0][e];
        }
      }
    accumulate<kDepth, kQueries, kColumns>(dk, ds, tile_q + column);
    member = next_member, query0 = next_query;
  }

  __syncthreads();  // the keys' own tiles now stage what is written
  const float one[2] = {1.0f, 1.0f}, scale[2] = {a.view.scale, a.view.scale};
  store_rows<kDepth, kColumns>(dv, one, a.dv, tile.begin * a.dv.row + kv_head * a.dv.head, key0 + my_keys, last + 1,
                               column, a.depth, shared_v + my_keys * kStride);
  store_rows<kDepth, kColumns>(dk, scale, a.dk, tile.begin * a.dk.row + kv_head * a.dk.head, key0 + my_keys, last + 1,
                               column, a.depth, shared_k + my_keys * kStride);
}

// ---- queries: dQ

template <int kDepth>
struct QueriesShape {
  static constexpr int kThreads = 128;
  static constexpr int kKeys = kDepth > 96 ? 32 : 64;
  static constexpr int kStride = kDepth + 8;
  static constexpr int kBytes = (2 * kTileRows + 4 * kKeys) * kStride * 2;
};

template <class T, int kDepth, bool kVaried>
__global__ void __launch_bounds__(128, kDepth <= 80 ? 3 : 2) attention_queries_kernel(const BackwardArguments a) {
  using Shape = QueriesShape<kDepth>;
  constexpr int kKeys = Shape::kKeys, kStride = Shape::kStride, kThreads = Shape::kThreads;
  T* const shared_q = reinterpret_cast<T*>(shared_memory());
  T* const shared_do = shared_q + kTileRows * kStride;
  T* const shared_k = shared_do + kTileRows * kStride;  // two stages
  T* const shared_v = shared_k + 2 * kKeys * kStride;   // two stages

  const QueryBlock<T, kDepth, kKeys, kThreads> block(a);
  const Tile& tile = block.tile;
  const int head = block.head, row0 = block.row0, last = block.last, prefix = block.prefix;
  const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize, g = lane / 4, t = lane % 4;
  block.load_queries(shared_q, a.q, a.depth);
  block.load_queries(shared_do, a.dout, a.depth);
  const auto load_keys = [&](int key0, int stage) {
    block.load_keys(shared_k + stage * kKeys * kStride, a.k, key0, a.depth);
    block.load_keys(shared_v + stage * kKeys * kStride, a.v, key0, a.depth);
  };
  int key0 = block.next(0);
  load_keys(key0, 0);
  copy_async_commit();

  const float scale2 = a.view.scale * kLog2E;
  const float alibi = kVaried && a.view.slopes ? a.view.slopes[head] : 0.0f;
  int row[2], low[2];
  float lse2[2], delta[2];
#pragma unroll
  for (int r = 0; r < 2; r++) {
    row[r] = row0 + warp * 16 + g + 8 * r;
    const int there = smaller(row[r], last);
    low[r] = lowest(a.view, tile.begin, there);
    lse2[r] = a.lse2[head * a.n + tile.begin + there];
    delta[r] = a.delta[head * a.n + tile.begin + there];
  }
  float dq[kDepth / 8][4];
  clear(dq);
  for (int stage = 0; key0 <= last; stage ^= 1) {
    copy_async_wait<0>();
    __syncthreads();  // this stage is there for all, and nobody reads the other one any more
    const int next = block.next(key0 + kKeys);
    if (next <= last) load_keys(next, stage ^ 1);
    copy_async_commit();

    float p[kKeys / 8][4], ds[kKeys / 8][4];
    const T* const tile_k = shared_k + stage * kKeys * kStride;
    multiply_tiles<kDepth, kKeys>(p, shared_q + warp * 16 * kStride, tile_k);
    multiply_tiles<kDepth, kKeys>(ds, shared_do + warp * 16 * kStride, shared_v + stage * kKeys * kStride);
    const bool whole = block.whole(key0);
#pragma unroll
    for (int j = 0; j < kKeys / 8; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const int r = e / 2, key = key0 + 8 * j + 2 * t + e % 2;
        float slope = 1.0f;
        const float w = weight<kVaried>(p[j][e], scale2, lse2[r], a.view, alibi, row[r] - key, &slope);
        ds[j][e] = whole || sees(row[r], key, low[r], prefix) ? w * (ds[j][e] - delta[r]) * slope : 0.0f;
      }
    accumulate<kDepth, kKeys, kDepth>(dq, ds, tile_k);
    key0 = next;
  }
  __syncwarp();  // the warp's rows of q were read by all its lanes
  const float scale[2] = {a.view.scale, a.view.scale};
  store_rows<kDepth, kDepth>(dq, scale, a.dq, tile.begin * a.dq.row + head * a.dq.head, row0 + warp * 16, last + 1, 0,
                             a.depth, shared_q + warp * 16 * kStride);
}

// out and dout as the rows kernel reads them: in their own storage.
int32_t start_rows(sfx_stream* stream, const AttentionCall& c, const sfx_tensor* out, const sfx_tensor* dout,
                   RowArguments a) {
  a.out = out->data, a.out_row = out->stride[0], a.out_head = out->stride[1];
  a.dout = dout->data, a.dout_row = dout->stride[0], a.dout_head = dout->stride[1];
  SFX_REQUIRE(out->dtype == dout->dtype, "attention: out and dout must be stored alike");
  const dim3 blocks = grid(a.chunks, c.heads);
  const auto start = [&](auto kernel) {
    return launch(stream, "attention_rows", kernel, blocks, kRowThreads, kRowThreads / kWarpSize * 4, a);
  };
  switch (out->dtype) {
    case SFX_F32:
      return start(attention_rows_kernel<float>);
    case SFX_F16:
      return start(attention_rows_kernel<F16>);
    default:
      return start(attention_rows_kernel<Bf16>);
  }
}

}  // namespace

int32_t attention_backward(sfx_stream* stream, const sfx_tensor* dout, const sfx_tensor* q, const sfx_tensor* k,
                           const sfx_tensor* v, const float* sink, const sfx_tensor* out, const float* lse,
                           const int32_t* cu_seqlens, int64_t segments, const sfx_attention_mask* mask, sfx_tensor* dq,
                           sfx_tensor* dk, sfx_tensor* dv, float* dsink) {
  Scratch scratch(stream);
  AttentionCall c;
  SFX_TRY(prepare_attention(stream, &scratch, q, k, sink, cu_seqlens, segments, mask, &c));
  SFX_REQUIRE(is_device_memory(out->data) && is_device_memory(dout->data),
              "attention: out and dout must be in device memory");
  SFX_REQUIRE(!dsink || is_device_memory(dsink), "attention: results go to device memory");
  if (c.tiles.empty()) return SFX_OK;
  BackwardArguments a = {};
  SFX_TRY(readable(c, q, &a.q));
  SFX_TRY(readable(c, k, &a.k));
  SFX_TRY(readable(c, v, &a.v));
  SFX_TRY(readable(c, dout, &a.dout));
  SFX_TRY(writable(c, dq, &a.dq));
  SFX_TRY(writable(c, dk, &a.dk));
  SFX_TRY(writable(c, dv, &a.dv));
  RowArguments rows = {};
  rows.n = c.n, rows.chunks = pieces(c.n, kRowsTogether), rows.heads = (int32_t)c.heads, rows.depth = (int32_t)c.depth;
  rows.function = c.function, rows.sink = c.sink, rows.dlse = c.dlse, rows.lse = scratch.input(lse, c.n * c.heads);
  rows.lse2 = scratch.take<float>(c.heads * c.n);
  rows.delta = scratch.take<float>(c.heads * c.n);
  rows.partial = scratch.take<float>(c.heads * rows.chunks);
  const Tile *const by_keys = tiles_of_keys(c), *const by_queries = tiles_of_queries(c);
  SFX_TRY(scratch.status());
  SFX_TRY(start_rows(stream, c, out, dout, rows));
  if (sink && dsink)
    SFX_TRY(SFX_LAUNCH(stream, attention_dsink_kernel, grid(c.heads), kWarpSize, 0, rows.partial, rows.chunks, dsink));
  a.lse2 = rows.lse2, a.delta = rows.delta, a.n = c.n, a.view = c.view;
  a.group = (int32_t)(c.heads / c.kv_heads), a.depth = (int32_t)c.depth;
  const auto finish_gradients = [&] {
    SFX_TRY(finish(c, a.dq, dq));
    SFX_TRY(finish(c, a.dk, dk));
    return finish(c, a.dv, dv);
  };
  if (c.dtype == SFX_F32) {
    SFX_TRY(float_backward(stream, c,
                           {a.q, a.k, a.v, a.dout, a.dq, a.dk, a.dv, rows.lse2, rows.delta, by_keys, by_queries}));
    return finish_gradients();
  }
  SFX_TRY(with_shape(c, [&](auto type, auto size) {
    using T = decltype(type);
    constexpr int kDepth = decltype(size)::value;
    const auto keys = [&](auto kernel) {
      a.tiles = by_keys;
      return launch(stream, "attention_keys", kernel, grid((int64_t)c.tiles.size(), c.kv_heads),
                    KeysShape<kDepth>::kThreads, KeysShape<kDepth>::kBytes, a);
    };
    const auto queries = [&](auto kernel) {
      a.tiles = by_queries;
      return launch(stream, "attention_queries", kernel, grid((int64_t)c.tiles.size(), c.heads),
                    QueriesShape<kDepth>::kThreads, QueriesShape<kDepth>::kBytes, a);
    };
    SFX_TRY(c.varied ? keys(attention_keys_kernel<T, kDepth, true>) : keys(attention_keys_kernel<T, kDepth, false>));
    return c.varied ? queries(attention_queries_kernel<T, kDepth, true>)
                    : queries(attention_queries_kernel<T, kDepth, false>);
  }));
  return finish_gradients();
}

}  // namespace sfx::cuda
