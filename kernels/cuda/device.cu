#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <atomic>
#include <new>

#include "device.h"

#ifndef __CUDACC__
#include "emulation/device-memory.h"
#endif

namespace {

thread_local char error_text[2048] = "";

constexpr int64_t kAlign = 256, kChunk = 8 << 20;

struct Chunk {
  char* memory;
  int64_t bytes;
};

}  // namespace

struct sfx_stream {
#ifdef __CUDACC__
  cudaStream_t handle = nullptr;
#endif
  std::vector<Chunk> chunks;  // lent in order; an operator that outgrows them adds one
  int64_t used = 0, peak = 0;
};

namespace sfx::cuda {

int32_t fail(int32_t status, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(error_text, sizeof error_text, format, arguments);
  va_end(arguments);
  return status;
}
const char* last_error() { return error_text; }

#ifdef __CUDACC__

namespace {

// One a process: buffers and kernels of two would meet. The runtime keeps the choice for each thread.
std::atomic<int> chosen{-1};

// What a person can do about it.
const char* advice(cudaError_t error) {
  switch (error) {
    case cudaErrorInsufficientDriver:
      return "the NVIDIA driver is missing or older than this build's CUDA: install or update it (nvidia-smi tells its "
             "version)";
    case cudaErrorNoDevice:
      return "no NVIDIA GPU is visible: see nvidia-smi and CUDA_VISIBLE_DEVICES";
    case cudaErrorNoKernelImageForDevice:
      return "this build has no code for the GPU: it needs compute capability 8.0 or newer (npm run build:cuda)";
    case cudaErrorMemoryAllocation:
      return "out of device memory";
    default:
      return "see the CUDA documentation of the error";
  }
}
int32_t checked(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return SFX_OK;
  cudaGetLastError();
  return fail(error == cudaErrorMemoryAllocation ? SFX_OUT_OF_MEMORY : SFX_DEVICE_ERROR, "%s: %s (%s): %s", what,
              cudaGetErrorString(error), cudaGetErrorName(error), advice(error));
}

// Each thread of the host has a current device of its own.
int32_t use_device() {
  thread_local int current = -1;
  if (current == chosen) return SFX_OK;
  SFX_TRY(checked(cudaSetDevice(chosen), "choosing a GPU"));
  current = chosen;
  return SFX_OK;
}

}  // namespace

int32_t device_probe(int32_t index, char* description, size_t bytes) {
  int count = 0;
  SFX_TRY(checked(cudaGetDeviceCount(&count), "looking for GPUs"));
  if (index < 0 || index >= count) return fail(SFX_UNSUPPORTED, "there is no GPU %d: %d are visible", index, count);
  cudaDeviceProp properties;
  SFX_TRY(checked(cudaGetDeviceProperties(&properties, index), "asking a GPU"));
  if (properties.major < 8)
    return fail(SFX_UNSUPPORTED, "GPU %d, %s, has compute capability %d.%d; 8.0 or newer is needed", index,
                properties.name, properties.major, properties.minor);
  snprintf(description, bytes, "%s, compute capability %d.%d, %zu MiB", properties.name, properties.major,
           properties.minor, properties.totalGlobalMem >> 20);
  return SFX_OK;
}

int32_t device_open(int32_t index) {
  char description[320];
  SFX_TRY(device_probe(index, description, sizeof description));
  int before = -1;
  if (!chosen.compare_exchange_strong(before, index) && before != index)
    return fail(SFX_UNSUPPORTED, "this process works on GPU %d already: another one needs a process of its own",
                before);
  return use_device();
}

sfx_stream* stream_create(int32_t) {
  if (use_device() != SFX_OK) return nullptr;
  auto* stream = new (std::nothrow) sfx_stream;
  if (stream &&
      checked(cudaStreamCreateWithFlags(&stream->handle, cudaStreamNonBlocking), "making a stream") != SFX_OK) {
    delete stream;
    return nullptr;
  }
  return stream;
}
void stream_destroy(sfx_stream* stream) {
  if (!stream) return;
  cudaStreamSynchronize(stream->handle);
  for (const Chunk& chunk : stream->chunks) release(chunk.memory);
  cudaStreamDestroy(stream->handle);
  delete stream;
}
int32_t synchronize(sfx_stream* stream) {
  return checked(cudaStreamSynchronize(stream->handle), "waiting for the GPU");
}
void* allocate(int64_t bytes) {
  void* memory = nullptr;
  if (use_device() != SFX_OK) return nullptr;
  const cudaError_t error = cudaMalloc(&memory, (size_t)bytes);
  if (error == cudaSuccess) return memory;
  size_t free_bytes = 0, all = 0;
  cudaGetLastError();
  if (error == cudaErrorMemoryAllocation && cudaMemGetInfo(&free_bytes, &all) == cudaSuccess)
    fail(SFX_OUT_OF_MEMORY, "out of device memory: %lld bytes wanted, %zu of %zu free; use smaller batches",
         (long long)bytes, free_bytes, all);
  else
    checked(error, "allocating device memory");
  return nullptr;
}
void release(void* memory) { cudaFree(memory); }
int32_t copy(sfx_stream* stream, void* to, const void* from, int64_t bytes) {
  if (bytes == 0) return SFX_OK;
  SFX_TRY(use_device());
  SFX_TRY(checked(cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDefault, stream->handle), "copying"));
  // Only copies to the host block.
  return is_device_memory(to) ? SFX_OK : synchronize(stream);
}
int32_t fill_zero(sfx_stream* stream, void* to, int64_t bytes) {
  SFX_TRY(use_device());
  return checked(cudaMemsetAsync(to, 0, (size_t)bytes, stream->handle), "filling with zeros");
}
bool is_device_memory(const void* at) {
  cudaPointerAttributes attributes;
  if (cudaPointerGetAttributes(&attributes, at) != cudaSuccess) {
    cudaGetLastError();
    return false;
  }
  return attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
}
void* native_stream(sfx_stream* stream) { return stream->handle; }
void written_outside(float*, int64_t, int64_t, int64_t) {}
int32_t launch_kernel(sfx_stream* stream, const char* name, const void* kernel, dim3 blocks, dim3 threads,
                      size_t shared_bytes, void** arguments) {
  SFX_TRY(use_device());
  if (shared_bytes > 48 * 1024)
    SFX_TRY(
        checked(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_bytes), name));
  return checked(cudaLaunchKernel(kernel, blocks, threads, arguments, shared_bytes, stream->handle), name);
}

#else

int32_t device_probe(int32_t index, char* description, size_t bytes) {
  if (index != 0) return fail(SFX_UNSUPPORTED, "there is no GPU %d: 1 is emulated", index);
  snprintf(description, bytes, "emulated on the CPU");
  return SFX_OK;
}
int32_t device_open(int32_t index) {
  char description[32];
  return device_probe(index, description, sizeof description);
}
sfx_stream* stream_create(int32_t) { return new (std::nothrow) sfx_stream; }
void stream_destroy(sfx_stream* stream) {
  if (!stream) return;
  for (const Chunk& chunk : stream->chunks) release(chunk.memory);
  delete stream;
}
int32_t synchronize(sfx_stream*) { return SFX_OK; }
void* allocate(int64_t bytes) {
  void* memory = emulation::device_allocate((size_t)bytes);
  if (!memory)
    fail(SFX_OUT_OF_MEMORY, "out of device memory: %lld bytes wanted, %zu are taken; use smaller batches",
         (long long)bytes, emulation::device_bytes_used());
  return memory;
}
void release(void* memory) { emulation::device_release(memory); }
int32_t copy(sfx_stream*, void* to, const void* from, int64_t bytes) {
  return emulation::device_copy(to, from, (size_t)bytes)
             ? SFX_OK
             : fail(SFX_DEVICE_ERROR, "a copy of %lld bytes leaves its allocation", (long long)bytes);
}
int32_t fill_zero(sfx_stream*, void* to, int64_t bytes) {
  return emulation::device_zero(to, (size_t)bytes)
             ? SFX_OK
             : fail(SFX_DEVICE_ERROR, "zeros over %lld bytes leave their allocation", (long long)bytes);
}
bool is_device_memory(const void* at) { return emulation::is_device(at); }
void* native_stream(sfx_stream* stream) { return stream; }
void written_outside(float* at, int64_t rows, int64_t columns, int64_t stride) {
  for (int64_t i = 0; i < rows; i++) emulation::device_written(at + i * stride, (size_t)columns * sizeof(float));
}
int32_t launch_failed() { return fail(SFX_DEVICE_ERROR, "%s", emulation::launch_problem()); }

#endif

// ---- the arena

int64_t arena_enter(sfx_stream* stream) { return stream->used; }
void arena_leave(sfx_stream* stream, int64_t mark) { stream->used = mark; }
int64_t arena_peak(const sfx_stream* stream) { return stream->peak; }

// A mark counts bytes over all chunks; a piece lies in one.
void* arena_take(sfx_stream* stream, int64_t bytes) {
  const int64_t size = (bytes + kAlign - 1) / kAlign * kAlign;
  int64_t begin = 0;
  for (size_t i = 0;; i++) {
    if (i == stream->chunks.size()) {
      const int64_t room = size > kChunk ? size : kChunk;
      char* memory = static_cast<char*>(allocate(room));
      if (!memory) return nullptr;
      stream->chunks.push_back({memory, room});
    }
    const Chunk& chunk = stream->chunks[i];
    const int64_t at = stream->used > begin ? stream->used - begin : 0;
    if (at + size <= chunk.bytes) {
      stream->used = begin + at + size;
      if (stream->used > stream->peak) stream->peak = stream->used;
#ifndef __CUDACC__
      emulation::device_forget(chunk.memory + at, (size_t)size);
#endif
      return chunk.memory + at;
    }
    begin += chunk.bytes;
  }
}
int32_t arena_reserve(sfx_stream* stream, int64_t bytes) {
  int64_t have = 0;
  for (const Chunk& chunk : stream->chunks) have = chunk.bytes > have ? chunk.bytes : have;
  if (have >= bytes) return SFX_OK;
  // One chunk for all: earlier ones are given back once nothing of them is in use.
  if (stream->used == 0) {
    SFX_TRY(synchronize(stream));
    for (const Chunk& chunk : stream->chunks) release(chunk.memory);
    stream->chunks.clear();
  }
  char* memory = static_cast<char*>(allocate(bytes));
  if (!memory) return SFX_OUT_OF_MEMORY;
  stream->chunks.insert(stream->used == 0 ? stream->chunks.begin() : stream->chunks.end(), {memory, bytes});
  return SFX_OK;
}

}  // namespace sfx::cuda
