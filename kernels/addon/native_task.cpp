#include "native_task.h"

#include <exception>
#include <thread>
#include <utility>

#include "addon.h"

namespace sinkflex {
namespace {

struct Task;
void call_js(Napi::Env env, Napi::Function, Task* context, Task* task);
using Settler = Napi::TypedThreadSafeFunction<Task, Task, call_js>;

struct Task {
  Task(Napi::Env env, StopFlag flag, std::function<void()> w, std::function<Napi::Value(Napi::Env)> s)
      : deferred(Napi::Promise::Deferred::New(env)), stop(std::move(flag)), work(std::move(w)), settle(std::move(s)) {}
  Napi::Promise::Deferred deferred;
  StopFlag stop;
  std::function<void()> work;
  std::function<Napi::Value(Napi::Env)> settle;
  std::exception_ptr failure;
  Settler settler;
  std::thread thread;
};

// The environment ends first. Registered after the thread-safe function, so it runs before that one closes: no call can
// meet a closed function (nodejs/node#55706). The call that is queued by now is dropped with a null environment.
void tear_down(void* data) {
  auto* task = static_cast<Task*>(data);
  task->stop->store(true, std::memory_order_release);
  task->thread.join();
  delete task;
}

void call_js(Napi::Env env, Napi::Function, Task*, Task* data) {
  if (static_cast<napi_env>(env) == nullptr) return;
  const std::unique_ptr<Task> task(data);
  task->thread.join();
  napi_remove_env_cleanup_hook(env, tear_down, task.get());
  try {
    const Napi::HandleScope scope(env);
    try {
      const Napi::Value value = guard(env, [&] {
        if (task->failure) std::rethrow_exception(task->failure);
        return task->settle(env);
      });
      task->deferred.Resolve(value);
    } catch (const Napi::Error& error) {
      task->deferred.Reject(error.Value());
    }
  } catch (const Napi::Error&) {
    // The environment is terminating: nobody is left to be told.
  }
  task->settler.Release();
}

}  // namespace

Napi::Promise run_native(Napi::Env env, const char* name, StopFlag stop, std::function<void()> work,
                         std::function<Napi::Value(Napi::Env)> settle) {
  auto task = std::make_unique<Task>(env, std::move(stop), std::move(work), std::move(settle));
  const Napi::Promise promise = task->deferred.Promise();
  task->settler = Settler::New(env, name, 0, 1, task.get());
  Task* raw = task.release();
  napi_add_env_cleanup_hook(env, tear_down, raw);
  raw->thread = std::thread([raw] {
    try {
      raw->work();
    } catch (...) {
      raw->failure = std::current_exception();
    }
    raw->settler.BlockingCall(raw);
  });
  return promise;
}

}  // namespace sinkflex
