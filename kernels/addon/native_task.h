// A promise whose work runs on a thread of its own: for waits (futexes, locks), which would starve libuv's small pool.
#ifndef SINKFLEX_ADDON_NATIVE_TASK_H
#define SINKFLEX_ADDON_NATIVE_TASK_H

#include <napi.h>

#include <atomic>
#include <functional>
#include <memory>

namespace sinkflex {

using StopFlag = std::shared_ptr<std::atomic<bool>>;

// `work` runs off the JavaScript thread; it must return soon after *stop becomes true (also set when the environment
// ends, which then waits for it). `settle` runs on the JavaScript thread and makes the value; what either throws
// rejects the promise. Both are destroyed on the JavaScript thread.
Napi::Promise run_native(Napi::Env env, const char* name, StopFlag stop, std::function<void()> work,
                         std::function<Napi::Value(Napi::Env)> settle);

}  // namespace sinkflex

#endif
