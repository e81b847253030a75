// writeImage: fill a fresh slot of a store from JavaScript and publish it, all in one call. For what happens once
// (initialisation, reading a checkpoint); the optimiser publishes from its own thread.
#include "../memory/versioned_segment.h"
#include "arguments.h"
#include "engine.h"
#include "segment.h"

namespace sinkflex {

namespace {

// writeImage(segment, lineage, version, fill: (slot: ArrayBuffer) => void). The buffer is detached when fill returns.
void write_image(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  guard(env, [&] {
    const auto segment = UnwrapSegment(info[0]);
    const uint32_t lineage = static_cast<uint32_t>(integer_of(info[1], "lineage", 0, (1 << 24) - 1));
    const uint32_t version = static_cast<uint32_t>(integer_of(info[2], "version", 0, UINT32_MAX));
    if (!info[3].IsFunction()) throw bad_argument("fill", "a function");
    WaitOptions wait;
    wait.timeout = std::chrono::milliseconds(0);  // the loop must not wait
    VersionedSegment::Writing writing = segment->begin_write(wait);
    Napi::ArrayBuffer slot = Napi::ArrayBuffer::New(env, writing.data(), static_cast<size_t>(segment->slot_bytes()));
    try {
      info[3].As<Napi::Function>().Call({slot});
    } catch (...) {
      slot.Detach();
      throw;
    }
    slot.Detach();
    writing.publish(lineage, version);
  });
}

}  // namespace

void register_write_image(Napi::Env env, Napi::Object exports) {
  exports.Set("writeImage", Napi::Function::New(env, write_image, "writeImage"));
}

}  // namespace sinkflex
