// What the attention kernels share. A block works on one tile of 64 positions of one segment; a warp on 16 rows of it.
// Tiles stand in shared memory row by row, 8 elements (16 bytes) of padding a row, so that the eight rows of an
// ldmatrix lie in different banks for every head size. Which keys a query sees is a function of window, prefix and the
// segment's document starts alone: tiles that nobody sees are stepped over in closed form, tiles that everybody sees
// whole are not masked, and there is no mask tensor.
#ifndef SINKFLEX_CUDA_ATTENTION_CUH
#define SINKFLEX_CUDA_ATTENTION_CUH

#include "device.h"
#include "fragments.cuh"

namespace sfx::cuda {

// One block's share: positions [first, first + 64) of the segment whose rows begin at `begin`.
struct Tile {
  int32_t begin, length, first, unused;
};
constexpr int kTileRows = 64;

// [n, heads, D] in device memory, D contiguous; strides in elements.
struct Heads {
  void* data;
  int64_t row, head;
};

struct View {
  int32_t window, prefix;  // window < 0: none
  float scale, softcap;
  const int32_t* start;  // [n] or NULL: first position of the row's document
  const float* slopes;   // [heads] or NULL
};

SFX_DEVICE int smaller(int a, int b) { return a < b ? a : b; }
SFX_DEVICE int larger(int a, int b) { return a > b ? a : b; }

// The first key that the query at t sees besides the prefix; never falls as t grows.
SFX_DEVICE int lowest(const View& view, int begin, int t) {
  const int low = view.window < 0 ? 0 : larger(t - view.window, 0);
  return view.start ? larger(low, view.start[begin + t]) : low;
}
SFX_DEVICE bool sees(int t, int key, int low, int prefix) { return key <= t && (key >= low || key < prefix); }

// Keys are walked in tiles; the first tile at or after key0 that a query whose lowest key is `low` may see.
template <int kKeys>
SFX_DEVICE int next_keys(int key0, int low, int prefix) {
  return key0 < prefix ? key0 : larger(key0, low / kKeys * kKeys);
}

// score = scale q k, then softcap and ALiBi; *slope: d score / d (scale q k)
SFX_DEVICE float varied_score(float x, const View& view, float alibi, int distance, float* slope) {
  *slope = 1.0f;
  if (view.softcap > 0) {
    const float y = tanhf(x / view.softcap);
    *slope = 1.0f - y * y;
    x = view.softcap * y;
  }
  return x - alibi * (float)distance;
}

// Sink functions other than the sigmoid: f, log f, (1 - f'/f) / f with f' = df/dlse, and df/ds / f.
struct SinkTerms {
  float f, log_f, ratio, sink;
};
SFX_DEVICE SinkTerms sink_terms(int function, float lse, float s) {
  if (function == SFX_SINK_GATE) {
    const float f = 1.0f / (1.0f + expf(-s));
    return {f, logf(f), 1.0f / f, 1.0f / (1.0f + expf(s))};
  }
  // 1 - exp(-u), u = exp(lse - s); by series where that would cancel. u is held where f is 1 long since.
  const float x = fminf(lse - s, 4.6f), u = expf(x), e = expf(-u);
  const bool small = u < 0.01f;
  const float f = small ? u * (1.0f + u * (-0.5f + u / 6.0f)) : 1.0f - e;
  const float rise = small ? 1.0f + u * (-0.5f + u / 12.0f) : u * e / f;  // f'/f
  const float ratio = small ? 0.5f + u / 6.0f : (1.0f - rise) / f;
  return {f, x < -20.0f ? x : logf(f), ratio, -rise};
}

// Largest finite exponent that takes part: a sink of 3e38 stays comparable in units of log 2.
constexpr float kMostLog2 = 3.0e38f;
SFX_DEVICE float in_log2(float x) { return fminf(fmaxf(x * kLog2E, -SFX_INFINITE), kMostLog2); }

// Rows [first, first + kRows) of a segment into shared memory; rows that `valid` refuses and columns from `depth` on
// are zeros (and their memory is not read: what stands outside of every window plays no part).
template <int kRows, int kDepth, int kThreads, class T, class Valid>
SFX_DEVICE void load_rows(T* shared, const T* from, int64_t row, int first, int depth, const Valid& valid) {
  constexpr int kChunks = kDepth / 8, kAll = kRows * kChunks;
#pragma unroll 2
  for (int i = 0; i < (kAll + kThreads - 1) / kThreads; i++) {
    const int at = i * kThreads + (int)threadIdx.x;
    if (kAll % kThreads != 0 && at >= kAll) break;
    const int r = at / kChunks, c = at % kChunks * 8;
    const bool there = c < depth && valid(first + r);
    copy_async(shared + r * (kDepth + 8) + c, there ? from + (int64_t)(first + r) * row + c : from, there);
  }
}

// What a block of 64 queries of one head begins with, and its walk over the keys that some of them see. `a`: the
// kernel's arguments (q, k, v, tiles, group, depth, view).
template <class T, int kDepth, int kKeys, int kThreads>
struct QueryBlock {
  Tile tile;
  int head, kv_head, row0, last, prefix, low_first, low_last;  // queries [row0, last]

  template <class Arguments>
  SFX_DEVICE explicit QueryBlock(const Arguments& a) : tile(a.tiles[blockIdx.x]), head(blockIdx.y) {
    kv_head = head / a.group, row0 = tile.first, last = smaller(row0 + kTileRows, tile.length) - 1;
    prefix = a.view.prefix, low_first = lowest(a.view, tile.begin, row0), low_last = lowest(a.view, tile.begin, last);
  }
  SFX_DEVICE void load_queries(T* shared, const Heads& from, int depth) const {
    const int end = last;
    load_rows<kTileRows, kDepth, kThreads>(shared,
                                           static_cast<const T*>(from.data) + tile.begin * from.row + head * from.head,
                                           from.row, row0, depth, [=](int r) { return r <= end; });
  }
  SFX_DEVICE void load_keys(T* shared, const Heads& from, int key0, int depth) const {
    const int end = last, low = low_first, shown = prefix;
    load_rows<kKeys, kDepth, kThreads>(
        shared, static_cast<const T*>(from.data) + tile.begin * from.row + kv_head * from.head, from.row, key0, depth,
        [=](int key) { return key <= end && (key >= low || key < shown); });
  }
  // The tile of keys at or after key0 that comes first.
  SFX_DEVICE int next(int key0) const { return next_keys<kKeys>(key0, low_first, prefix); }
  // Whether every query sees all keys of the tile.
  SFX_DEVICE bool whole(int key0) const {
    return key0 + kKeys - 1 <= row0 && (low_last <= key0 || key0 + kKeys <= prefix);
  }
};

template <int kCount>
SFX_DEVICE void clear(float (&c)[kCount][4]) {
#pragma unroll
  for (int j = 0; j < kCount; j++)
#pragma unroll
    for (int e = 0; e < 4; e++) c[j][e] = 0.0f;
}

// c[16][kColumns] = a b^T over kDepth; a: the warp's 16 rows, b: kColumns rows of a tile.
template <int kDepth, int kColumns, class T>
SFX_DEVICE void multiply_tiles(float (&c)[kColumns / 8][4], const T* a, const T* b) {
  clear(c);
#pragma unroll
  for (int k = 0; k < kDepth; k += 16) {
    uint32_t x[4], y[4];
    load_a<kDepth>(x, a, k);
#pragma unroll
    for (int n = 0; n < kColumns / 16; n++) {
      load_b_rows<kDepth>(y, b + 16 * n * (kDepth + 8), k);
      multiply_add(T{}, c[2 * n], x, y[0], y[1]);
      multiply_add(T{}, c[2 * n + 1], x, y[2], y[3]);
    }
  }
}

// c[16][kColumns] += p[16][kInner] tile[kInner][kColumns], p as packed pairs of C fragments.
template <int kDepth, int kInner, int kColumns, class T>
SFX_DEVICE void accumulate(float (&c)[kColumns / 8][4], const float (&p)[kInner / 8][4], const T* tile) {
#pragma unroll
  for (int k = 0; k < kInner / 16; k++) {
    const float (&low)[4] = p[2 * k], (&high)[4] = p[2 * k + 1];
    const uint32_t x[4] = {pack(T{}, low[0], low[1]), pack(T{}, low[2], low[3]), pack(T{}, high[0], high[1]),
                           pack(T{}, high[2], high[3])};
#pragma unroll
    for (int n = 0; n < kColumns / 16; n++) {
      uint32_t y[4];
      load_b_columns<kDepth>(y, tile + 16 * k * (kDepth + 8), 16 * n);
      multiply_add(T{}, c[2 * n], x, y[0], y[1]);
      multiply_add(T{}, c[2 * n + 1], x, y[2], y[3]);
    }
  }
}

// The warp's C fragment, row r times factor[r / 8], as T, to rows [first, length) of a tensor. `stage`:
// 16 rows of shared memory that are the warp's own.
template <int kDepth, int kColumns, class T>
SFX_DEVICE void store_rows(const float (&c)[kColumns / 8][4], const float (&factor)[2], const Heads& to, int64_t base,
                           int first, int length, int column, int depth, T* stage) {
  const int lane = threadIdx.x % kWarpSize, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int j = 0; j < kColumns / 8; j++)
#pragma unroll
    for (int r = 0; r < 2; r++)
      *reinterpret_cast<uint32_t*>(stage + (g + 8 * r) * (kDepth + 8) + column + 8 * j + 2 * t) =
          pack(T{}, c[j][2 * r] * factor[r], c[j][2 * r + 1] * factor[r]);
  __syncwarp();
  constexpr int kChunks = kColumns / 8;
#pragma unroll
  for (int i = 0; i < 16 * kChunks / kWarpSize; i++) {
    const int at = i * kWarpSize + lane, r = at / kChunks, d = column + at % kChunks * 8, row = first + r;
    if (row < length && d < depth)
      *reinterpret_cast<uint4*>(static_cast<T*>(to.data) + base + row * to.row + d) =
          *reinterpret_cast<const uint4*>(stage + r * (kDepth + 8) + d);
  }
}

// ---- the host's side (attention-tensors.cu)

// All that the entry points check and prepare before kernels run.
struct AttentionCall {
  Scratch* scratch;
  int32_t dtype;                              // of q: what the kernels read and write
  int64_t n, heads, kv_heads, depth, padded;  // padded: the head size of the kernel
  std::vector<Tile> tiles;
  View view;
  bool varied;
  int32_t function;
  const float *sink, *dlse;
};
// The tiles in device memory, those with most work first, so that no block begins a long walk when the others are done:
// a tile of queries walks the keys before it, a tile of keys the queries after it.
const Tile* tiles_of_queries(AttentionCall&);
const Tile* tiles_of_keys(AttentionCall&);
// SFX_BAD_ARGUMENT or SFX_UNSUPPORTED with a message that says which.
int32_t prepare_attention(sfx_stream*, Scratch*, const sfx_tensor* q, const sfx_tensor* k, const float* sink,
                          const int32_t* cu_seqlens, int64_t segments, const sfx_attention_mask*, AttentionCall*);
// The tensor where a kernel can read it in 16-byte pieces of `dtype`: itself, or a copy.
int32_t readable(const AttentionCall&, const sfx_tensor*, Heads*);
// Where a kernel writes: the tensor itself, or scratch that `finish` copies from.
int32_t writable(const AttentionCall&, const sfx_tensor*, Heads*);
int32_t finish(const AttentionCall&, const Heads&, const sfx_tensor*);

// use(T{}, std::integral_constant<int, head size>{}) for the kernel's storage and the smallest head size that holds D.
#ifndef SFX_HEAD_SIZES
#define SFX_HEAD_SIZES(X) X(32) X(64) X(80) X(96) X(128) X(256)
#endif
template <class Use>
int32_t with_shape(const AttentionCall& c, const Use& use) {
#define SFX_WITH(size)                                                          \
  if (c.padded == size)                                                         \
    return c.dtype == SFX_F16 ? use(F16{}, std::integral_constant<int, size>{}) \
                              : use(Bf16{}, std::integral_constant<int, size>{});
  SFX_HEAD_SIZES(SFX_WITH)
#undef SFX_WITH
  return fail(SFX_UNSUPPORTED, "attention: no kernel for heads of %lld", (long long)c.depth);
}

}  // namespace sfx::cuda
#endif
