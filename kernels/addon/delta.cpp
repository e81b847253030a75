// encodeDelta and applyDelta for JavaScript. kernels/delta.ts is the typed face; sizes are checked here.
#include "../memory/delta.h"

#include <memory>

#include "addon.h"
#include "arguments.h"
#include "native_task.h"
#include "values.h"

namespace sinkflex {
namespace {

// A typed array and what keeps it from being collected while a thread uses it.
struct Held {
  Napi::ObjectReference array;
  Span<uint8_t> bytes;
};

Held hold(const Napi::Value& value, const char* name) {
  const Span<uint8_t> bytes = bytes_of(value, name);
  return {Napi::Persistent(value.As<Napi::Object>()), bytes};
}

struct Task {
  Held before;  // its array is empty where there is none
  Held now;
  Held delta;
  std::vector<uint8_t> encoded;

  const uint8_t* base() const { return before.array.IsEmpty() ? nullptr : before.bytes.data; }
};

void take_before(Task& task, const Napi::Value& value) {
  if (value.IsUndefined()) return;
  task.before = hold(value, "before");
  if (task.before.bytes.size != task.now.bytes.size)
    throw Error("SINKFLEX_BAD_ARGUMENT", "before has " + std::to_string(task.before.bytes.size) + " bytes, now " +
                                             std::to_string(task.now.bytes.size) +
                                             ": versions of one slot are equally long");
}

// (before or undefined, now, width, threads) -> Promise<Uint8Array>
Napi::Value encode(const Napi::CallbackInfo& info) {
  return guard(info.Env(), [&]() -> Napi::Value {
    const auto task = std::make_shared<Task>();
    task->now = hold(info[1], "now");
    take_before(*task, info[0]);
    const auto width = static_cast<unsigned>(integer_argument(info, 2, "elementBytes", 2, 4));
    const auto threads = static_cast<unsigned>(integer_argument(info, 3, "threads", 1, 256));
    if (width == 3 || task->now.bytes.size % width != 0)
      throw Error("SINKFLEX_BAD_ARGUMENT", "elementBytes must be 2 or 4, and divide the number of bytes");
    return run_native(
        info.Env(), "sinkflex:encodeDelta", std::make_shared<std::atomic<bool>>(false),
        [=] { task->encoded = encode_delta(task->base(), task->now.bytes.data, task->now.bytes.size, width, threads); },
        [=](Napi::Env env) -> Napi::Value {
          auto* kept = new std::vector<uint8_t>(std::move(task->encoded));
          const auto buffer = Napi::ArrayBuffer::New(
              env, kept->data(), kept->size(), [](Napi::Env, void*, std::vector<uint8_t>* hint) { delete hint; }, kept);
          return Napi::Uint8Array::New(env, kept->size(), buffer, 0);
        });
  });
}

// (delta, before or undefined, now, threads) -> Promise<void>
Napi::Value apply(const Napi::CallbackInfo& info) {
  return guard(info.Env(), [&]() -> Napi::Value {
    const auto task = std::make_shared<Task>();
    task->delta = hold(info[0], "delta");
    task->now = hold(info[2], "now");
    take_before(*task, info[1]);
    const auto threads = static_cast<unsigned>(integer_argument(info, 3, "threads", 1, 256));
    return run_native(
        info.Env(), "sinkflex:applyDelta", std::make_shared<std::atomic<bool>>(false),
        [=] {
          apply_delta(task->delta.bytes.data, task->delta.bytes.size, task->base(), task->now.bytes.data,
                      task->now.bytes.size, threads);
        },
        [=](Napi::Env env) -> Napi::Value { return env.Undefined(); });
  });
}

}  // namespace

void init_delta(Napi::Env env, Napi::Object exports) {
  exports.Set("encodeDelta", Napi::Function::New(env, encode, "encodeDelta"));
  exports.Set("applyDelta", Napi::Function::New(env, apply, "applyDelta"));
}

}  // namespace sinkflex
