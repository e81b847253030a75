// The products' own kernels. float32: a block of 256 threads has a tile of 64 (few rows: 16) x 64 outputs, walks k in
// steps of 16 through shared memory, each thread 4 (1) x 4 outputs in registers. bf16: 128 threads, a tile of 64 x 64
// in fragments of mma.m16n8k16, k in steps of 32. 2 operations a fma; each value of A and B is read once a tile.
#include "cublaslt.h"
#include "fragments.cuh"
#include "products.cuh"

namespace sfx::cuda {

namespace {

constexpr int kColumns = 64;

enum class Grouping : int32_t { kNone, kRows, kInner };

struct Arguments {
  Product p;
  Groups groups;
  Grouping grouping;
};

// What is left of the product for one block: rows [row0, row_end) and columns from column0 of its group.
struct Share {
  int64_t row0, row_end, column0, inner0, k, group;
};
template <int kRows>
SFX_DEVICE bool share_of(const Arguments& a, Share* s) {
  int64_t tile = blockIdx.x;
  *s = {tile * kRows, a.p.m, (int64_t)blockIdx.y * kColumns, 0, a.p.k, (int64_t)blockIdx.z};
  if (a.grouping == Grouping::kInner) {
    s->inner0 = a.groups.first[s->group], s->k = a.groups.first[s->group + 1] - s->inner0;
    return s->k > 0;
  }
  if (a.grouping == Grouping::kNone) return true;
  for (s->group = 0; s->group < a.groups.count; s->group++) {
    const int64_t begin = a.groups.first[s->group], end = a.groups.first[s->group + 1];
    const int64_t tiles = (end - begin + kRows - 1) / kRows;
    if (tile < tiles) {
      s->row0 = begin + tile * kRows, s->row_end = end;
      return true;
    }
    tile -= tiles;
  }
  return false;
}

SFX_DEVICE float* output_of(const Arguments& a, const Share& s, int64_t row, int64_t column) {
  const int64_t step = a.grouping == Grouping::kInner ? s.group * a.groups.c_step : 0;
  return a.p.c + step + row * a.p.c_row + column * a.p.c_column;
}
SFX_DEVICE void store_output(const Arguments& a, const Share& s, int64_t row, int64_t column, float value) {
  if (row >= s.row_end || column >= a.p.n) return;
  float* const to = output_of(a, s, row, column);
  if (a.p.bias) value += a.p.bias[(a.grouping == Grouping::kRows ? s.group * a.groups.bias_step : 0) + column];
  *to = a.p.add ? value + *to : value;
}
template <class T>
SFX_DEVICE const T* left_of(const Arguments& a, const Share& s) {
  return static_cast<const T*>(a.p.a.data) + s.row0 * a.p.a.row + s.inner0 * a.p.a.column;
}
SFX_DEVICE int64_t right_of(const Arguments& a, const Share& s) {
  const int64_t step = a.grouping == Grouping::kRows ? s.group * a.groups.b_step : 0;
  return step + s.inner0 * a.p.b.row + s.column0 * a.p.b.column;
}

// Two codes of E2M1 a byte, the low half first, times the power of two of their block (E8M0): exact in float32.
struct Mxfp4 {};
template <class T>
SFX_DEVICE float element(T, const Matrix& m, int64_t i) {
  return widen(static_cast<const T*>(m.data)[i]);
}
SFX_DEVICE float element(Mxfp4, const Matrix& m, int64_t i) {
  const uint32_t code = static_cast<const uint8_t*>(m.data)[i / 2] >> (i % 2 * 4) & 15u, scale = m.scales[i / 32];
  const uint32_t exponent = code >> 1 & 3u, half = code & 1u;
  const uint32_t size = exponent ? (exponent + 126u) << 23 | half << 22 : half ? 0x3f000000u : 0u;
  const uint32_t power = scale == 0u ? 0x00400000u : scale == 255u ? 0x7fc00000u : scale << 23;
  return __uint_as_float((code & 8u) << 28 | size) * __uint_as_float(power);
}

// ---- float32

constexpr int kThreads = 256, kDepth = 16, kMine = 4;  // outputs of a thread along n

template <int kRowsMine, class B>
__global__ void __launch_bounds__(kThreads) product_kernel(const Arguments a) {
  constexpr int kRows = 16 * kRowsMine;
  float* const shared_a = reinterpret_cast<float*>(shared_memory());  // [kDepth][kRows + 1]
  float* const shared_b = shared_a + kDepth * (kRows + 1);            // [kDepth][kColumns + 1]
  Share s;
  if (!share_of<kRows>(a, &s)) return;
  const float* const left = left_of<float>(a, s);
  const int64_t right = right_of(a, s);
  const int64_t rows = s.row_end - s.row0, columns = a.p.n - s.column0;
  const bool a_along_k = a.p.a.column == 1, b_along_k = a.p.b.row == 1;
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  float sum[kRowsMine][kMine];
#pragma unroll
  for (int i = 0; i < kRowsMine; i++)
#pragma unroll
    for (int j = 0; j < kMine; j++) {
      const int64_t row = s.row0 + ty + 16 * i, column = s.column0 + tx + 16 * j;
      sum[i][j] = a.p.chain && row < s.row_end && column < a.p.n ? *output_of(a, s, row, column) : 0.0f;
    }
  for (int64_t k0 = 0; k0 < s.k; k0 += kDepth) {
    const int depth = s.k - k0 < kDepth ? (int)(s.k - k0) : kDepth;
    for (int i = threadIdx.x; i < kRows * kDepth; i += kThreads) {
      const int r = a_along_k ? i / kDepth : i % kRows, d = a_along_k ? i % kDepth : i / kRows;
      shared_a[d * (kRows + 1) + r] = r < rows && d < depth ? left[r * a.p.a.row + (k0 + d) * a.p.a.column] : 0.0f;
    }
    for (int i = threadIdx.x; i < kColumns * kDepth; i += kThreads) {
      const int c = b_along_k ? i / kDepth : i % kColumns, d = b_along_k ? i % kDepth : i / kColumns;
      shared_b[d * (kColumns + 1) + c] =
          c < columns && d < depth ? element(B{}, a.p.b, right + (k0 + d) * a.p.b.row + c * a.p.b.column) : 0.0f;
    }
    __syncthreads();
    const auto step = [&](int d) {
      float x[kRowsMine], y[kMine];
#pragma unroll
      for (int i = 0; i < kRowsMine; i++) x[i] = shared_a[d * (kRows + 1) + ty + 16 * i];
#pragma unroll
      for (int j = 0; j < kMine; j++) y[j] = shared_b[d * (kColumns + 1) + tx + 16 * j];
#pragma unroll
      for (int i = 0; i < kRowsMine; i++)
#pragma unroll
        for (int j = 0; j < kMine; j++) sum[i][j] = fmaf(x[i], y[j], sum[i][j]);
    };
    if (depth == kDepth) {
#pragma unroll
      for (int d = 0; d < kDepth; d++) step(d);
    } else {
      for (int d = 0; d < depth; d++) step(d);
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kRowsMine; i++)
#pragma unroll
    for (int j = 0; j < kMine; j++) store_output(a, s, s.row0 + ty + 16 * i, s.column0 + tx + 16 * j, sum[i][j]);
}

// ---- bf16

constexpr int kMmaThreads = 128, kMmaDepth = 32, kMmaRows = 64;

__global__ void __launch_bounds__(kMmaThreads) product_mma_kernel(const Arguments a) {
  constexpr int kStride = kMmaDepth + 8;
  Bf16* const shared_a = reinterpret_cast<Bf16*>(shared_memory());  // [kMmaRows][kStride]
  Bf16* const shared_b = shared_a + kMmaRows * kStride;             // [kColumns][kStride], transposed
  Share s;
  if (!share_of<kMmaRows>(a, &s)) return;
  const Bf16 *const left = left_of<Bf16>(a, s), *const right = static_cast<const Bf16*>(a.p.b.data) + right_of(a, s);
  const int64_t rows = s.row_end - s.row0, columns = a.p.n - s.column0;
  const bool a_along_k = a.p.a.column == 1, b_along_k = a.p.b.row == 1;
  const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize, g = lane / 4, t = lane % 4;
  float sum[kColumns / 8][4];
#pragma unroll
  for (int j = 0; j < kColumns / 8; j++)
#pragma unroll
    for (int e = 0; e < 4; e++) {
      const int64_t row = s.row0 + 16 * warp + g + e / 2 * 8, column = s.column0 + 8 * j + 2 * t + e % 2;
      sum[j][e] = a.p.chain && row < s.row_end && column < a.p.n ? *output_of(a, s, row, column) : 0.0f;
    }
  for (int64_t k0 = 0; k0 < s.k; k0 += kMmaDepth) {
    const int depth = s.k - k0 < kMmaDepth ? (int)(s.k - k0) : kMmaDepth;
    for (int i = threadIdx.x; i < kMmaRows * kMmaDepth; i += kMmaThreads) {
      const int r = a_along_k ? i / kMmaDepth : i % kMmaRows, d = a_along_k ? i % kMmaDepth : i / kMmaRows;
      shared_a[r * kStride + d] = r < rows && d < depth ? left[r * a.p.a.row + (k0 + d) * a.p.a.column] : Bf16{0};
    }
    for (int i = threadIdx.x; i < kColumns * kMmaDepth; i += kMmaThreads) {
      const int c = b_along_k ? i / kMmaDepth : i % kColumns, d = b_along_k ? i % kMmaDepth : i / kColumns;
      shared_b[c * kStride + d] = c < columns && d < depth ? right[(k0 + d) * a.p.b.row + c * a.p.b.column] : Bf16{0};
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kMmaDepth; k += 16) {
      uint32_t x[4], y[4];
      load_a<kMmaDepth>(x, shared_a + 16 * warp * kStride, k);
#pragma unroll
      for (int j = 0; j < kColumns / 16; j++) {
        load_b_rows<kMmaDepth>(y, shared_b + 16 * j * kStride, k);
        multiply_add(Bf16{}, sum[2 * j], x, y[0], y[1]);
        multiply_add(Bf16{}, sum[2 * j + 1], x, y[2], y[3]);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int j = 0; j < kColumns / 8; j++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      store_output(a, s, s.row0 + 16 * warp + g + e / 2 * 8, s.column0 + 8 * j + 2 * t + e % 2, sum[j][e]);
}

int32_t start(sfx_stream* stream, const Arguments& a) {
  const Product& p = a.p;
  if (p.m == 0 || p.n == 0) return SFX_OK;
  const int64_t groups = a.grouping == Grouping::kNone ? 1 : a.groups.count;
  // Groups of rows fill their last tiles only in part: one more tile each.
  const auto blocks = [&](int64_t rows) {
    return grid(pieces(p.m, rows) + (a.grouping == Grouping::kRows ? groups : 0), pieces(p.n, kColumns),
                a.grouping == Grouping::kInner ? groups : 1);
  };
  if (p.a.dtype == SFX_BF16 && p.b.dtype == SFX_BF16)
    return SFX_LAUNCH(stream, product_mma_kernel, blocks(kMmaRows), kMmaThreads,
                      (kMmaRows + kColumns) * (kMmaDepth + 8) * sizeof(Bf16), a);
  if (p.a.dtype != SFX_F32)
    return fail(SFX_UNSUPPORTED, "products take float32 by float32, bf16 or MXFP4, or bf16 by bf16");
  const auto bytes = [](int rows) { return kDepth * (rows + kColumns + 2) * sizeof(float); };
  const bool few = (a.grouping == Grouping::kRows ? p.m / groups : p.m) <= 16;
  const auto by = [&](auto b) {
    using B = decltype(b);
    return few ? SFX_LAUNCH(stream, (product_kernel<1, B>), blocks(16), kThreads, bytes(16), a)
               : SFX_LAUNCH(stream, (product_kernel<4, B>), blocks(64), kThreads, bytes(64), a);
  };
  switch (p.b.dtype) {
    case SFX_F32:
      return by(0.0f);
    case SFX_BF16:
      return by(Bf16{});
    case SFX_MXFP4:
      return by(Mxfp4{});
    default:
      return fail(SFX_UNSUPPORTED, "products take right operands of float32, bf16 or MXFP4");
  }
}

}  // namespace

int32_t multiply(sfx_stream* stream, const Product& p) {
  const int32_t status = multiply_by_cublaslt(stream, p);
  return status == SFX_UNSUPPORTED ? start(stream, {p, {}, Grouping::kNone}) : status;
}
int32_t multiply_rows(sfx_stream* stream, const Product& p, const Groups& g) {
  return start(stream, {p, g, Grouping::kRows});
}
int32_t multiply_inner(sfx_stream* stream, const Product& p, const Groups& g) {
  return start(stream, {p, g, Grouping::kInner});
}

}  // namespace sfx::cuda
