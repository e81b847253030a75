// JavaScript's SharedMemory. kernels/shared-memory.ts is the typed face; arguments are checked here.
#include <cstdio>
#include <vector>

#include "../memory/bulk_copy.h"
#include "../memory/shared_region.h"
#include "addon.h"
#include "region.h"
#include "values.h"
#include "views.h"

namespace sinkflex {
namespace {

class SharedMemoryWrap : public Napi::ObjectWrap<SharedMemoryWrap> {
 public:
  static Napi::Function define(Napi::Env env) {
    return DefineClass(
        env, "SharedMemory",
        {InstanceMethod<&SharedMemoryWrap::address>("address"), InstanceMethod<&SharedMemoryWrap::view>("view"),
         InstanceMethod<&SharedMemoryWrap::write>("write"), InstanceMethod<&SharedMemoryWrap::release>("release")});
  }

  // new SharedMemory(bytes) creates, (address, private) opens.
  explicit SharedMemoryWrap(const Napi::CallbackInfo& info) : ObjectWrap(info) {
    guard(info.Env(), [&] {
      if (info[0].IsObject()) {
        const bool is_private = info[1].ToBoolean();
        region_ = SharedRegion::open(region_address(info[0].As<Napi::Object>()),
                                     is_private ? os::Mapping::Mode::kPrivate : os::Mapping::Mode::kShared);
      } else {
        region_ = SharedRegion::create(integer_argument(info, 0, "bytes", 1, uint64_t{1} << 46));
      }
    });
  }

 private:
  SharedRegion& region(Napi::Env env) const {
    if (region_ == nullptr)
      throw make_error(env, "SINKFLEX_MEMORY_GONE", "this shared memory was released here: open it again");
    return *region_;
  }

  Napi::Value address(const Napi::CallbackInfo& info) {
    return region_object(info.Env(), region(info.Env()).address());
  }

  // (offset, bytes) -> ArrayBuffer, which keeps the mapping until it is collected
  Napi::Value view(const Napi::CallbackInfo& info) {
    const Napi::Env env = info.Env();
    SharedRegion& region = this->region(env);
    return guard(env, [&]() -> Napi::Value {
      const uint64_t size = region.address().bytes;
      const uint64_t offset = integer_argument(info, 0, "offset", 0, size);
      const uint64_t bytes = integer_argument(info, 1, "bytes", 0, size - offset);
      const Napi::ArrayBuffer buffer = view_of(env, region.data() + offset, bytes, region_);
      std::erase_if(views_, [](const Napi::Reference<Napi::ArrayBuffer>& view) { return view.Value().IsEmpty(); });
      views_.push_back(Napi::Weak(buffer));
      return buffer;
    });
  }

  // (offset, Uint8Array, threads)
  void write(const Napi::CallbackInfo& info) {
    SharedRegion& region = this->region(info.Env());
    guard(info.Env(), [&] {
      if (!info[1].IsTypedArray()) throw Error("SINKFLEX_BAD_ARGUMENT", "source must be a Uint8Array");
      const auto source = info[1].As<Napi::Uint8Array>();
      const uint64_t bytes = source.ByteLength();
      const uint64_t size = region.address().bytes;
      const uint64_t offset = integer_argument(info, 0, "offset", 0, size);
      if (bytes > size - offset) {
        throw Error("SINKFLEX_BAD_ARGUMENT", std::to_string(bytes) + " bytes at " + std::to_string(offset) +
                                                 " do not fit into " + std::to_string(size) + " bytes of memory");
      }
      const auto threads = static_cast<unsigned>(integer_argument(info, 2, "threads", 0, 256));
      bulk_copy({{region.data() + offset, source.Data(), static_cast<size_t>(bytes)}}, threads);
    });
  }

  void release(const Napi::CallbackInfo&) {
    for (const auto& view : views_) {
      Napi::ArrayBuffer buffer = view.Value();
      if (!buffer.IsEmpty() && !buffer.IsDetached()) buffer.Detach();
    }
    views_.clear();
    // The finalisers of detached views run some turns later, and hold the mapping until then.
    region_.reset();
  }

  std::shared_ptr<SharedRegion> region_;
  std::vector<Napi::Reference<Napi::ArrayBuffer>> views_;  // weak
};

}  // namespace

void init_shared_memory(Napi::Env env, Napi::Object exports) {
  exports.Set("SharedMemory", SharedMemoryWrap::define(env));
}

}  // namespace sinkflex
