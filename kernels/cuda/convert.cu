// Memory-bound: reads and writes each value once.
#include "convert.cuh"
#include "intrinsics.cuh"

namespace sfx::cuda {

namespace {

constexpr int kThreads = 256;

struct HeadsLayout {
  int64_t count;  // n * heads * padded
  int64_t row, head;
  int32_t heads, depth, padded;
};

template <class From, class To>
__global__ void __launch_bounds__(kThreads) gather(const From* from, To* to, HeadsLayout h) {
  const int64_t i = (int64_t)blockIdx.x * kThreads + threadIdx.x;
  if (i >= h.count) return;
  const int64_t d = i % h.padded, head = i / h.padded % h.heads, row = i / h.padded / h.heads;
  narrow(d < h.depth ? widen(from[row * h.row + head * h.head + d]) : 0.0f, to + i);
}

template <class From, class To>
__global__ void __launch_bounds__(kThreads) scatter(const From* from, To* to, HeadsLayout h) {
  const int64_t i = (int64_t)blockIdx.x * kThreads + threadIdx.x;
  if (i >= h.count) return;
  const int64_t d = i % h.padded, head = i / h.padded % h.heads, row = i / h.padded / h.heads;
  if (d < h.depth) narrow(widen(from[i]), to + row * h.row + head * h.head + d);
}

HeadsLayout heads_of(const sfx_tensor& t, int64_t padded) {
  return {t.shape[0] * t.shape[1] * padded,
          t.stride[0],
          t.stride[1],
          (int32_t)t.shape[1],
          (int32_t)t.shape[2],
          (int32_t)padded};
}

// use(a pointer of the storage type)
template <class Use>
int32_t by_dtype(int32_t dtype, const void* data, const Use& use) {
  void* at = const_cast<void*>(data);
  switch (dtype) {
    case SFX_F32:
      return use(static_cast<float*>(at));
    case SFX_BF16:
      return use(static_cast<Bf16*>(at));
    case SFX_F16:
      return use(static_cast<F16*>(at));
    default:
      return fail(SFX_UNSUPPORTED, "heads are stored as float32, bf16 or fp16");
  }
}

}  // namespace

int32_t gather_heads(sfx_stream* stream, const sfx_tensor& from, void* to, int32_t dtype, int64_t padded) {
  const HeadsLayout h = heads_of(from, padded);
  return by_dtype(from.dtype, from.data, [&](auto* source) {
    return by_dtype(dtype, to, [&](auto* target) {
      using From = std::remove_pointer_t<decltype(source)>;
      using To = std::remove_pointer_t<decltype(target)>;
      return SFX_LAUNCH(stream, (gather<From, To>), grid(pieces(h.count, kThreads)), kThreads, 0, source, target, h);
    });
  });
}

int32_t scatter_heads(sfx_stream* stream, const void* from, int32_t dtype, int64_t padded, const sfx_tensor& to) {
  const HeadsLayout h = heads_of(to, padded);
  return by_dtype(dtype, from, [&](auto* source) {
    return by_dtype(to.dtype, to.data, [&](auto* target) {
      using From = std::remove_pointer_t<decltype(source)>;
      using To = std::remove_pointer_t<decltype(target)>;
      return SFX_LAUNCH(stream, (scatter<From, To>), grid(pieces(h.count, kThreads)), kThreads, 0, source, target, h);
    });
  });
}

}  // namespace sfx::cuda
