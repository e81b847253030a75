// The host's side of the CUDA backend: streams with a scratch arena, device memory, kernel launches and errors. One
// implementation over the CUDA runtime (nvcc), one over the emulated machine.
#ifndef SINKFLEX_CUDA_DEVICE_H
#define SINKFLEX_CUDA_DEVICE_H

#include <stdint.h>

#include <tuple>
#include <type_traits>
#include <vector>

#include "../backend.h"

#ifdef __CUDACC__
#include <cuda_runtime.h>
#else
#include "emulation/launch.h"
#endif

struct sfx_stream;

namespace sfx::cuda {

int32_t fail(int32_t status, const char* format, ...) __attribute__((format(printf, 2, 3)));
const char* last_error();

// Whether GPU `index` is there and fit; what it is, in a few words.
int32_t device_probe(int32_t index, char* description, size_t bytes);
// Chosen for the process; every stream belongs to it.
int32_t device_open(int32_t index);

sfx_stream* stream_create(int32_t threads);
void stream_destroy(sfx_stream*);
int32_t synchronize(sfx_stream*);
void* allocate(int64_t bytes);
void release(void*);
int32_t copy(sfx_stream*, void* to, const void* from, int64_t bytes);
int32_t fill_zero(sfx_stream*, void* to, int64_t bytes);
bool is_device_memory(const void*);
// What libraries of CUDA know the stream by.
void* native_stream(sfx_stream*);
// Tells the emulated machine what such a library has written: rows of floats.
void written_outside(float* at, int64_t rows, int64_t columns, int64_t stride);

// The arena of a stream: pieces lent to one operator, lent again to the next since work on a stream runs in order.
int64_t arena_enter(sfx_stream*);
void arena_leave(sfx_stream*, int64_t mark);
void* arena_take(sfx_stream*,
                 int64_t bytes);  // 256-byte aligned; NULL: out of device memory, last_error has the numbers
int64_t arena_peak(const sfx_stream*);
int32_t arena_reserve(sfx_stream*, int64_t bytes);

class Scratch {
 public:
  explicit Scratch(sfx_stream* stream) : stream_(stream), mark_(arena_enter(stream)) {}
  ~Scratch() { arena_leave(stream_, mark_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  sfx_stream* stream() const { return stream_; }
  // SFX_OK, or why something could not be taken or copied.
  int32_t status() const { return status_; }
  template <class T>
  T* take(int64_t count) {
    void* memory = arena_take(stream_, count * (int64_t)sizeof(T));
    if (!memory) status_ = SFX_OUT_OF_MEMORY;
    return static_cast<T*>(memory);
  }
  // What a kernel may read: the array itself, or a copy of it on the device where it is the host's. NULL stays NULL.
  template <class T>
  const T* input(const T* array, int64_t count) {
    if (!array || count == 0 || is_device_memory(array)) return array;
    T* there = take<T>(count);
    if (there && status_ == SFX_OK) status_ = copy(stream_, there, array, count * (int64_t)sizeof(T));
    return there;
  }
  template <class T>
  const T* input(const std::vector<T>& array) {
    return input(array.data(), (int64_t)array.size());
  }

 private:
  sfx_stream* stream_;
  int64_t mark_;
  int32_t status_ = SFX_OK;
};

#ifdef __CUDACC__
int32_t launch_kernel(sfx_stream*, const char* name, const void* kernel, dim3 blocks, dim3 threads, size_t shared_bytes,
                      void** arguments);
#else
int32_t launch_failed();
#endif

template <class... Parameters, class... Arguments>
int32_t launch(sfx_stream* stream, const char* name, void (*kernel)(Parameters...), dim3 blocks, int threads,
               size_t shared_bytes, Arguments... arguments) {
  if (blocks.x == 0 || blocks.y == 0 || blocks.z == 0) return SFX_OK;
  dim3 block;
  block.x = (unsigned)threads;
#ifdef __CUDACC__
  std::tuple<Parameters...> values(arguments...);
  return std::apply(
      [&](auto&... value) {
        void* addresses[] = {static_cast<void*>(&value)..., nullptr};
        return launch_kernel(stream, name, reinterpret_cast<const void*>(kernel), blocks, block, shared_bytes,
                             addresses);
      },
      values);
#else
  (void)stream;
  return emulation::launch(name, kernel, blocks, block, shared_bytes, arguments...) ? SFX_OK : launch_failed();
#endif
}

inline dim3 grid(int64_t x, int64_t y = 1, int64_t z = 1) {
  dim3 g;
  g.x = (unsigned)x, g.y = (unsigned)y, g.z = (unsigned)z;
  return g;
}
inline int64_t pieces(int64_t count, int64_t size) { return (count + size - 1) / size; }

#define SFX_TRY(expression)                \
  do {                                     \
    const int32_t status_ = (expression);  \
    if (status_ != SFX_OK) return status_; \
  } while (0)
#define SFX_REQUIRE(condition, ...)                                          \
  do {                                                                       \
    if (!(condition)) return sfx::cuda::fail(SFX_BAD_ARGUMENT, __VA_ARGS__); \
  } while (0)

}  // namespace sfx::cuda

#define SFX_LAUNCH(stream, kernel, blocks, threads, shared_bytes, ...) \
  sfx::cuda::launch(stream, #kernel, kernel, blocks, threads, shared_bytes, __VA_ARGS__)

#endif
