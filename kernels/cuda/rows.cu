// A block a row, its threads along the columns: memory-bound.
#include "intrinsics.cuh"
#include "rows.cuh"

namespace sfx::cuda {

namespace {

constexpr int kThreads = 128;

template <class From>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(const From* from, int64_t stride, const int32_t* index, int32_t divisor, int64_t width, float* to) {
  const From* const source = from + (int64_t)(index[blockIdx.x] / divisor) * stride;
  float* const target = to + (int64_t)blockIdx.x * width;
  for (int64_t j = threadIdx.x; j < width; j += kThreads) target[j] = widen(source[j]);
}

__global__ void __launch_bounds__(kThreads)
    scatter_kernel(const float* from, const int32_t* index, int64_t width, float* to, int64_t stride) {
  const float* const source = from + (int64_t)blockIdx.x * width;
  float* const target = to + (int64_t)index[blockIdx.x] * stride;
  for (int64_t j = threadIdx.x; j < width; j += kThreads) target[j] = source[j];
}

}  // namespace

int32_t gather_rows(sfx_stream* stream, const float* from, int64_t stride, const int32_t* index, int32_t divisor,
                    int64_t rows, int64_t width, float* to) {
  return SFX_LAUNCH(stream, gather_kernel<float>, grid(rows), kThreads, 0, from, stride, index, divisor, width, to);
}

int32_t gather_rows(sfx_stream* stream, const Bf16* from, int64_t stride, const int32_t* index, int32_t divisor,
                    int64_t rows, int64_t width, float* to) {
  return SFX_LAUNCH(stream, gather_kernel<Bf16>, grid(rows), kThreads, 0, from, stride, index, divisor, width, to);
}

int32_t scatter_rows(sfx_stream* stream, const float* from, const int32_t* index, int64_t rows, int64_t width,
                     float* to, int64_t stride) {
  return SFX_LAUNCH(stream, scatter_kernel, grid(rows), kThreads, 0, from, index, width, to, stride);
}

}  // namespace sfx::cuda
