// Small tools over backend.h: checked calls, row-major float32 views, memory that the backend owns, and an arena that a
// pass plans once and reuses without allocating.
#ifndef SINKFLEX_MODEL_TENSORS_H
#define SINKFLEX_MODEL_TENSORS_H

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "../backend.h"
#include "../error.h"

namespace sinkflex {

// Throws when an operator failed; `what` names it in the message.
inline void check(const sfx_backend* backend, int32_t status, const char* what) {
  if (status == SFX_OK) return;
  const char* message = backend->last_error();
  throw Error(status == SFX_OUT_OF_MEMORY  ? "SINKFLEX_OUT_OF_MEMORY"
              : status == SFX_DEVICE_ERROR ? "SINKFLEX_DEVICE_FAILED"
                                           : "SINKFLEX_INTERNAL",
              std::string(what) + ": " + (message && *message ? message : "the backend gave no message"));
}

// Between the host and memory of the backend; blocks until it is done.
inline void upload(const sfx_backend* backend, sfx_stream* stream, void* to, const void* from, int64_t bytes) {
  check(backend, backend->copy(stream, to, from, bytes), "copy");
  check(backend, backend->synchronize(stream), "synchronize");
}
inline void download(const sfx_backend* backend, sfx_stream* stream, void* to, const void* from, int64_t bytes) {
  upload(backend, stream, to, from, bytes);
}

// Row-major float32 view.
inline sfx_tensor view(const void* data, std::initializer_list<int64_t> shape) {
  sfx_tensor t{};
  t.data = const_cast<void*>(data);
  t.dtype = SFX_F32;
  t.rank = static_cast<int32_t>(shape.size());
  int i = 0;
  for (int64_t s : shape) t.shape[i++] = s;
  for (; i < 4; ++i) t.shape[i] = 1;
  int64_t stride = 1;
  for (int d = 3; d >= 0; --d) {
    t.stride[d] = stride;
    if (d < t.rank) stride *= t.shape[d];
  }
  return t;
}

// Backend memory, owned.
class Block {
 public:
  Block() = default;
  Block(const sfx_backend* backend, int64_t bytes) : backend_(backend), bytes_(bytes) {
    if (bytes <= 0) return;
    data_ = backend->allocate(bytes);
    if (!data_)
      throw Error("SINKFLEX_OUT_OF_MEMORY", "the engine could not allocate " + std::to_string(bytes) + " bytes");
  }
  ~Block() {
    if (data_) backend_->release(data_);
  }
  Block(Block&& o) noexcept
      : backend_(o.backend_), data_(std::exchange(o.data_, nullptr)), bytes_(std::exchange(o.bytes_, 0)) {}
  Block& operator=(Block&& o) noexcept {
    std::swap(backend_, o.backend_);
    std::swap(data_, o.data_);
    std::swap(bytes_, o.bytes_);
    return *this;
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  void* data() const { return data_; }
  float* floats() const { return static_cast<float*>(data_); }
  int64_t bytes() const { return bytes_; }

 private:
  const sfx_backend* backend_ = nullptr;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

// A block where the host can read and write it: on a device a copy, brought by fetch() and brought back by send().
class HostCopy {
 public:
  HostCopy(const sfx_backend* backend, sfx_stream* stream, const Block& block)
      : backend_(backend), stream_(stream), block_(block) {
    if (backend->device_memory) copy_.resize(static_cast<size_t>(block.bytes()));
  }
  uint8_t* data() { return backend_->device_memory ? copy_.data() : static_cast<uint8_t*>(block_.data()); }
  void fetch() {
    if (backend_->device_memory) download(backend_, stream_, copy_.data(), block_.data(), block_.bytes());
  }
  void send() {
    if (backend_->device_memory) upload(backend_, stream_, block_.data(), copy_.data(), block_.bytes());
  }

 private:
  const sfx_backend* backend_;
  sfx_stream* stream_;
  const Block& block_;
  std::vector<uint8_t> copy_;
};

// A bump allocator. plan() runs a layout twice: first to measure (pointers are not to be used), then over real memory.
class Arena {
 public:
  template <typename Layout>
  void plan(const sfx_backend* backend, Layout&& layout) {
    base_ = nullptr;
    used_ = 0;
    layout(*this);
    if (used_ > block_.bytes()) {
      block_ = Block();  // give the old memory back before asking for more
      block_ = Block(backend, used_);
    }
    base_ = static_cast<uint8_t*>(block_.data());
    used_ = 0;
    layout(*this);
  }
  template <typename T>
  T* take(int64_t count) {
    T* at = reinterpret_cast<T*>(base_ + used_);
    used_ += (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
    return base_ ? at : nullptr;
  }
  int64_t bytes() const { return block_.bytes(); }
  int64_t used() const { return used_; }

 private:
  Block block_;
  uint8_t* base_ = nullptr;
  int64_t used_ = 0;
};

// Work that must see round-to-nearest and denormals, whatever the host process set: call on entry of a native thread.
void reset_float_environment();

}  // namespace sinkflex
#endif
