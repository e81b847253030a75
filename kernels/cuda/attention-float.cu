// Packed sink attention of float32 tensors, in float32: what models compute with, to the last digits of the CPU
// backend. The same walks, masks and formulas as the tensor cores' kernels, by fma: a block of 256 threads has 64
// positions (32 where heads are wider than 128), a thread 4 (2) rows of every product and each sixteenth column. What a
// row does not see plays no part in it, be it NaN.
#include "attention-float.cuh"

namespace sfx::cuda {

namespace {

constexpr int kThreads = 256, kSide = 16;

template <int kDepth>
struct Shape {
  static constexpr int kRows = kDepth > 128 ? 32 : 64;
  static constexpr int kMine = kRows / kSide;      // rows of a thread, and columns of a score tile
  static constexpr int kColumns = kDepth / kSide;  // columns of a thread in an output
  static constexpr int kHalves = kTileRows / kRows;
  static size_t bytes(int tiles, int weights, int64_t depth) {
    return ((size_t)tiles * kRows * (size_t)(depth + 1) + (size_t)weights * kRows * (kRows + 1)) * sizeof(float);
  }
};

struct Arguments {
  Heads q, k, v, dout, out, dq, dk, dv;
  const float *sink, *lse2, *delta;  // lse2, delta: [heads][n]
  float* lse;
  const Tile* tiles;
  int64_t n;
  int32_t heads, group, depth, function;
  View view;
};

SFX_DEVICE int my_row(int i) { return threadIdx.x / kSide + kSide * i; }
SFX_DEVICE int my_column(int j) { return threadIdx.x % kSide + kSide * j; }
SFX_DEVICE const float* head_of(const Heads& t, const Tile& tile, int head) {
  return static_cast<const float*>(t.data) + tile.begin * t.row + head * t.head;
}

// Rows [first, first + kRows) of a segment into shared memory, depth + 1 apart; zeros where `valid` refuses.
template <int kRows, class Valid>
SFX_DEVICE void load_tile(float* shared, const float* from, int64_t row, int first, int depth, const Valid& valid) {
  for (int i = threadIdx.x; i < kRows * depth; i += kThreads) {
    const int r = i / depth, d = i % depth;
    shared[r * (depth + 1) + d] = valid(first + r) ? from[(first + r) * row + d] : 0.0f;
  }
}
// sum = a b^T, rows of two tiles
template <int kMine>
SFX_DEVICE void multiply_rows(float (&sum)[kMine][kMine], const float* a, const float* b, int depth) {
#pragma unroll
  for (int i = 0; i < kMine; i++)
#pragma unroll
    for (int j = 0; j < kMine; j++) sum[i][j] = 0.0f;
  for (int d = 0; d < depth; d++) {
    float x[kMine], y[kMine];
#pragma unroll
    for (int i = 0; i < kMine; i++) x[i] = a[my_row(i) * (depth + 1) + d], y[i] = b[my_column(i) * (depth + 1) + d];
#pragma unroll
    for (int i = 0; i < kMine; i++)
#pragma unroll
      for (int j = 0; j < kMine; j++) sum[i][j] = fmaf(x[i], y[j], sum[i][j]);
  }
}
// sum += weights tile; weights of 0 keep out what they belong to.
template <int kMine, int kColumns>
SFX_DEVICE void add_weighted(float (&sum)[kMine][kColumns], const float* weights, const float* tile, int depth) {
  constexpr int kRows = kMine * kSide;
  for (int k = 0; k < kRows; k++) {
    float y[kColumns];
#pragma unroll
    for (int j = 0; j < kColumns; j++) y[j] = my_column(j) < depth ? tile[k * (depth + 1) + my_column(j)] : 0.0f;
#pragma unroll
    for (int i = 0; i < kMine; i++) {
      const float w = weights[my_row(i) * (kRows + 1) + k];
      if (w == 0.0f) continue;
#pragma unroll
      for (int j = 0; j < kColumns; j++) sum[i][j] = fmaf(w, y[j], sum[i][j]);
    }
  }
}
template <int kMine, int kColumns>
SFX_DEVICE void clear_sums(float (&sum)[kMine][kColumns]) {
#pragma unroll
  for (int i = 0; i < kMine; i++)
#pragma unroll
    for (int j = 0; j < kColumns; j++) sum[i][j] = 0.0f;
}
template <int kMine, int kColumns>
SFX_DEVICE void store_sums(const float (&sum)[kMine][kColumns], float factor, const Heads& to, const Tile& tile,
                           int head, int row0, int last, int depth) {
  float* const out = static_cast<float*>(to.data) + tile.begin * to.row + head * to.head;
#pragma unroll
  for (int i = 0; i < kMine; i++)
#pragma unroll
    for (int j = 0; j < kColumns; j++)
      if (row0 + my_row(i) <= last && my_column(j) < depth)
        out[(row0 + my_row(i)) * to.row + my_column(j)] = sum[i][j] * factor;
}
// Over the 16 threads of a row.
SFX_DEVICE float row_max(float x) {
#pragma unroll
  for (int mask = kSide / 2; mask > 0; mask /= 2) x = fmaxf(x, __shfl_xor_sync(kWholeWarp, x, mask));
  return x;
}
SFX_DEVICE float row_sum(float x) {
#pragma unroll
  for (int mask = kSide / 2; mask > 0; mask /= 2) x += __shfl_xor_sync(kWholeWarp, x, mask);
  return x;
}

template <int kDepth>
__global__ void __launch_bounds__(kThreads) float_forward_kernel(const Arguments a) {
  using S = Shape<kDepth>;
  constexpr int kRows = S::kRows, kMine = S::kMine;
  float* const q = reinterpret_cast<float*>(shared_memory());
  float* const kv = q + kRows * (a.depth + 1);
  float* const weights = kv + kRows * (a.depth + 1);
  const Tile tile = a.tiles[blockIdx.x];
  const int head = blockIdx.y, row0 = tile.first + (int)blockIdx.z * kRows;
  const int last = smaller(row0 + kRows, tile.length) - 1;
  if (row0 > last) return;
  const int prefix = a.view.prefix, low_first = lowest(a.view, tile.begin, row0);
  const auto some_see = [=](int key) { return key <= last && (key >= low_first || key < prefix); };
  load_tile<kRows>(q, head_of(a.q, tile, head), a.q.row, row0, a.depth, [=](int r) { return r <= last; });
  const float alibi = a.view.slopes ? a.view.slopes[head] : 0.0f;
  const bool seeded = a.sink && a.function == SFX_SINK_SIGMOID && a.sink[head] > -SFX_INFINITE;
  float top[kMine], sum[kMine], out[kMine][S::kColumns];
  clear_sums(out);
#pragma unroll
  for (int i = 0; i < kMine; i++) top[i] = seeded ? a.sink[head] : -SFX_INFINITE, sum[i] = seeded ? 1.0f : 0.0f;
  for (int key0 = next_keys<kRows>(0, low_first, prefix); key0 <= last;
       key0 = next_keys<kRows>(key0 + kRows, low_first, prefix)) {
    __syncthreads();
    load_tile<kRows>(kv, head_of(a.k, tile, head / a.group), a.k.row, key0, a.depth, some_see);
    __syncthreads();
    float score[kMine][kMine];
    multiply_rows(score, q, kv, a.depth);
#pragma unroll
    for (int i = 0; i < kMine; i++) {
      const int row = row0 + my_row(i), low = lowest(a.view, tile.begin, smaller(row, last));
      float found = -SFX_INFINITE, all = 0.0f, slope;
#pragma unroll
      for (int j = 0; j < kMine; j++) {
        const int key = key0 + my_column(j);
        score[i][j] = sees(row, key, low, prefix)
                          ? varied_score(score[i][j] * a.view.scale, a.view, alibi, row - key, &slope)
                          : -SFX_INFINITE;
        found = fmaxf(found, score[i][j]);
      }
      found = fmaxf(row_max(found), top[i]);
      const float rescale = top[i] == found ? 1.0f : expf(top[i] - found);
      top[i] = found;
#pragma unroll
      for (int j = 0; j < kMine; j++) {
        const float p = score[i][j] == -SFX_INFINITE ? 0.0f : expf(score[i][j] - found);
        weights[my_row(i) * (kRows + 1) + my_column(j)] = p;
        all += p;
      }
      sum[i] = fmaf(sum[i], rescale, row_sum(all));
#pragma unroll
      for (int j = 0; j < S::kColumns; j++) out[i][j] *= rescale;
    }
    __syncthreads();  // the keys were read by all
    load_tile<kRows>(kv, head_of(a.v, tile, head / a.group), a.v.row, key0, a.depth, some_see);
    __syncthreads();
    add_weighted(out, weights, kv, a.depth);
  }
#pragma unroll
  for (int i = 0; i < kMine; i++) {
    const int row = row0 + my_row(i);
    const float lse = sum[i] > 0.0f ? top[i] + logf(sum[i]) : -SFX_INFINITE;
    float factor = sum[i] > 0.0f ? 1.0f / sum[i] : 0.0f;
    if (a.sink && a.function != SFX_SINK_SIGMOID) factor *= sink_terms(a.function, lse, a.sink[head]).f;
#pragma unroll
    for (int j = 0; j < S::kColumns; j++) out[i][j] *= factor;
    if (a.lse && threadIdx.x % kSide == 0 && row <= last) a.lse[(int64_t)(tile.begin + row) * a.heads + head] = lse;
  }
  store_sums(out, 1.0f, a.out, tile, head, row0, last, a.depth);
}

// P and dS of one pair; both 0 where the query does not see the key.
struct Pair {
  float p, ds;
};
SFX_DEVICE Pair pair_of(const Arguments& a, float product, float dp, float lse2, float delta, float alibi, int query,
                        int key, int low) {
  if (!sees(query, key, low, a.view.prefix)) return {0.0f, 0.0f};
  float slope;
  const float x = varied_score(product * a.view.scale, a.view, alibi, query - key, &slope);
  const float p = exp2f(kLog2E * x - lse2);
  return {p, p * (dp - delta) * slope};
}

// dK and dV of a tile of keys; walks the queries of its group that see them.
template <int kDepth>
__global__ void __launch_bounds__(kThreads) float_keys_kernel(const Arguments a) {
  using S = Shape<kDepth>;
  constexpr int kRows = S::kRows, kMine = S::kMine;
  const int stride = kRows * (a.depth + 1);
  float* const k = reinterpret_cast<float*>(shared_memory());
  float *const v = k + stride, *const q = v + stride, *const dout = q + stride;
  float *const weights = dout + stride, *const slopes = weights + kRows * (kRows + 1);
  const Tile tile = a.tiles[blockIdx.x];
  const int key0 = tile.first + (int)blockIdx.z * kRows, last = smaller(key0 + kRows, tile.length) - 1;
  if (key0 > last) return;
  const int kv_head = blockIdx.y, prefix = a.view.prefix;
  load_tile<kRows>(k, head_of(a.k, tile, kv_head), a.k.row, key0, a.depth, [=](int r) { return r <= last; });
  load_tile<kRows>(v, head_of(a.v, tile, kv_head), a.v.row, key0, a.depth, [=](int r) { return r <= last; });
  float dk[kMine][S::kColumns], dv[kMine][S::kColumns];
  clear_sums(dk), clear_sums(dv);
  for (int head = kv_head * a.group; head < (kv_head + 1) * a.group; head++) {
    const float alibi = a.view.slopes ? a.view.slopes[head] : 0.0f;
    for (int query0 = key0; query0 < tile.length; query0 += kRows) {
      if (key0 >= prefix && lowest(a.view, tile.begin, query0) > last) break;
      const int end = smaller(query0 + kRows, tile.length) - 1;
      const auto there = [=](int r) { return r <= end; };
      __syncthreads();
      load_tile<kRows>(q, head_of(a.q, tile, head), a.q.row, query0, a.depth, there);
      load_tile<kRows>(dout, head_of(a.dout, tile, head), a.dout.row, query0, a.depth, there);
      __syncthreads();
      float product[kMine][kMine], dp[kMine][kMine];  // rows are keys, columns queries
      multiply_rows(product, k, q, a.depth);
      multiply_rows(dp, v, dout, a.depth);
#pragma unroll
      for (int j = 0; j < kMine; j++) {
        const int query = query0 + my_column(j);
        const int64_t at = head * a.n + tile.begin + smaller(query, end);
        const int low = lowest(a.view, tile.begin, smaller(query, end));
#pragma unroll
        for (int i = 0; i < kMine; i++) {
          const int key = key0 + my_row(i);
          const bool valid = query <= end && key <= last;
          const Pair pair = valid ? pair_of(a, product[i][j], dp[i][j], a.lse2[at], a.delta[at], alibi, query, key, low)
                                  : Pair{0.0f, 0.0f};
          weights[my_row(i) * (kRows + 1) + my_column(j)] = pair.p;
          slopes[my_row(i) * (kRows + 1) + my_column(j)] = pair.ds;
        }
      }
      __syncthreads();
      add_weighted(dv, weights, dout, a.depth);
      add_weighted(dk, slopes, q, a.depth);
    }
  }
  store_sums(dk, a.view.scale, a.dk, tile, kv_head, key0, last, a.depth);
  store_sums(dv, 1.0f, a.dv, tile, kv_head, key0, last, a.depth);
}

// dQ of a tile of queries; walks the keys that they see.
template <int kDepth>
__global__ void __launch_bounds__(kThreads) float_queries_kernel(const Arguments a) {
  using S = Shape<kDepth>;
  constexpr int kRows = S::kRows, kMine = S::kMine;
  const int stride = kRows * (a.depth + 1);
  float* const q = reinterpret_cast<float*>(shared_memory());
  float *const dout = q + stride, *const k = dout + stride, *const v = k + stride, *const slopes = v + stride;
  const Tile tile = a.tiles[blockIdx.x];
  const int head = blockIdx.y, row0 = tile.first + (int)blockIdx.z * kRows;
  const int last = smaller(row0 + kRows, tile.length) - 1;
  if (row0 > last) return;
  const int prefix = a.view.prefix, low_first = lowest(a.view, tile.begin, row0);
  const float alibi = a.view.slopes ? a.view.slopes[head] : 0.0f;
  const auto there = [=](int r) { return r <= last; };
  const auto some_see = [=](int key) { return key <= last && (key >= low_first || key < prefix); };
  load_tile<kRows>(q, head_of(a.q, tile, head), a.q.row, row0, a.depth, there);
  load_tile<kRows>(dout, head_of(a.dout, tile, head), a.dout.row, row0, a.depth, there);
  float dq[kMine][S::kColumns];
  clear_sums(dq);
  for (int key0 = next_keys<kRows>(0, low_first, prefix); key0 <= last;
       key0 = next_keys<kRows>(key0 + kRows, low_first, prefix)) {
    __syncthreads();
    load_tile<kRows>(k, head_of(a.k, tile, head / a.group), a.k.row, key0, a.depth, some_see);
    load_tile<kRows>(v, head_of(a.v, tile, head / a.group), a.v.row, key0, a.depth, some_see);
    __syncthreads();
    float product[kMine][kMine], dp[kMine][kMine];
    multiply_rows(product, q, k, a.depth);
    multiply_rows(dp, dout, v, a.depth);
#pragma unroll
    for (int i = 0; i < kMine; i++) {
      const int row = smaller(row0 + my_row(i), last), low = lowest(a.view, tile.begin, row);
      const int64_t at = head * a.n + tile.begin + row;
#pragma unroll
      for (int j = 0; j < kMine; j++)
        slopes[my_row(i) * (kRows + 1) + my_column(j)] =
            pair_of(a, product[i][j], dp[i][j], a.lse2[at], a.delta[at], alibi, row, key0 + my_column(j), low).ds;
    }
    __syncthreads();
    add_weighted(dq, slopes, k, a.depth);
  }
  store_sums(dq, a.view.scale, a.dq, tile, head, row0, last, a.depth);
}

Arguments arguments_of(const AttentionCall& c) {
  Arguments a = {};
  a.sink = c.sink, a.n = c.n, a.view = c.view, a.function = c.function;
  a.heads = (int32_t)c.heads, a.group = (int32_t)(c.heads / c.kv_heads), a.depth = (int32_t)c.depth;
  return a;
}

template <class Use>
int32_t with_depth(const AttentionCall& c, const Use& use) {
  if (c.depth <= 64) return use(std::integral_constant<int, 64>{});
  if (c.depth <= 128) return use(std::integral_constant<int, 128>{});
  return use(std::integral_constant<int, 256>{});
}

}  // namespace

int32_t float_forward(sfx_stream* stream, AttentionCall& c, const Heads& q, const Heads& k, const Heads& v,
                      const Heads& out, float* lse) {
  Arguments a = arguments_of(c);
  a.q = q, a.k = k, a.v = v, a.out = out, a.lse = lse, a.tiles = tiles_of_queries(c);
  SFX_TRY(c.scratch->status());
  return with_depth(c, [&](auto size) {
    using S = Shape<decltype(size)::value>;
    return SFX_LAUNCH(stream, (float_forward_kernel<decltype(size)::value>),
                      grid((int64_t)c.tiles.size(), c.heads, S::kHalves), kThreads, S::bytes(2, 1, c.depth), a);
  });
}

int32_t float_backward(sfx_stream* stream, AttentionCall& c, const FloatGradients& g) {
  Arguments a = arguments_of(c);
  a.q = g.q, a.k = g.k, a.v = g.v, a.dout = g.dout, a.dq = g.dq, a.dk = g.dk, a.dv = g.dv;
  a.lse2 = g.lse2, a.delta = g.delta;
  return with_depth(c, [&](auto size) {
    using S = Shape<decltype(size)::value>;
    const int64_t tiles = (int64_t)c.tiles.size();
    a.tiles = g.key_tiles;
    SFX_TRY(SFX_LAUNCH(stream, (float_keys_kernel<decltype(size)::value>), grid(tiles, c.kv_heads, S::kHalves),
                       kThreads, S::bytes(4, 2, c.depth), a));
    a.tiles = g.query_tiles;
    return SFX_LAUNCH(stream, (float_queries_kernel<decltype(size)::value>), grid(tiles, c.heads, S::kHalves), kThreads,
                      S::bytes(4, 1, c.depth), a);
  });
}

}  // namespace sfx::cuda
