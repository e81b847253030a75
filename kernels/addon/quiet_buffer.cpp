// Node-API can only make buffers that V8 counts, so these are made by V8's own interface: it counts nothing of a store
// that frees nothing. Who keeps the memory hangs on the pointer to the store, which V8 passes on whole, also to another
// thread that a buffer is transferred to. Where that interface is not (no headers, or the Node that runs is not the one
// that this was built for) they are counted ones.
#include "quiet_buffer.h"

#include <algorithm>
#include <cstring>

#if __has_include(<v8.h>) && __has_include(<node_version.h>)
#define SINKFLEX_V8 1
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wall"
#pragma GCC diagnostic ignored "-Wextra"
#include <node_version.h>
#include <v8.h>
#pragma GCC diagnostic pop
#endif

namespace sinkflex {
namespace {

using Count = std::shared_ptr<std::atomic<int64_t>>;

struct Kept {
  std::shared_ptr<const void> owner;
  Count live;
  int64_t bytes;

  Kept(std::shared_ptr<const void> owner, Count live, size_t bytes)
      : owner(std::move(owner)), live(std::move(live)), bytes(static_cast<int64_t>(bytes)) {
    *this->live += this->bytes;
  }
  ~Kept() { *live -= bytes; }
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;
};

#ifdef SINKFLEX_V8
bool is_build_version(Napi::Env env) {
  return Napi::VersionManagement::GetNodeVersion(env)->major == NODE_MAJOR_VERSION;
}

Napi::ArrayBuffer uncounted(Napi::Env env, uint8_t* data, size_t bytes, std::unique_ptr<Kept> kept) {
  auto store = v8::ArrayBuffer::NewBackingStore(data, bytes, v8::BackingStore::EmptyDeleter, nullptr);
  const std::shared_ptr<v8::BackingStore> shared(store.release(), [kept = kept.release()](v8::BackingStore* ended) {
    delete ended;
    delete kept;
  });
  const v8::Local<v8::ArrayBuffer> made = v8::ArrayBuffer::New(v8::Isolate::GetCurrent(), shared);
  napi_value value;
  static_assert(sizeof value == sizeof made);
  std::memcpy(static_cast<void*>(&value), static_cast<const void*>(&made), sizeof value);  // as Node does it
  return Napi::ArrayBuffer(env, value);
}
#endif

}  // namespace

Napi::ArrayBuffer QuietBuffers::make(Napi::Env env, uint8_t* data, size_t bytes, std::shared_ptr<const void> owner) {
#ifdef SINKFLEX_V8
  static const bool available = is_build_version(env);
  if (available) return uncounted(env, data, bytes, std::make_unique<Kept>(std::move(owner), live_, bytes));
#endif
  auto* kept = new std::shared_ptr<const void>(std::move(owner));
  return Napi::ArrayBuffer::New(
      env, data, bytes, [](Napi::Env, void*, std::shared_ptr<const void>* ended) { delete ended; }, kept);
}

int64_t QuietBuffers::tell(Napi::Env env, int64_t slack) {
  const int64_t live = *live_;
  const int64_t told = std::clamp(told_, std::max<int64_t>(0, live - slack), live);
  const int64_t change = told - told_;
  told_ = told;
  return Napi::MemoryManagement::AdjustExternalMemory(env, change);
}

}  // namespace sinkflex
