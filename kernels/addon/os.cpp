// JavaScript's `os`: see kernels/os.ts for what each function promises.
#include "../os/process.h"
#include "../os/shared_memory.h"
#include "addon.h"
#include "values.h"

namespace sinkflex {
namespace {

Napi::Value die_with_parent(const Napi::CallbackInfo& info) {
  return guard(info.Env(), [&] {
    os::die_with_parent(static_cast<int32_t>(integer_argument(info, 0, "expectedParentPid", 1, INT32_MAX)));
    return info.Env().Undefined();
  });
}

Napi::Value leave_process_group(const Napi::CallbackInfo& info) {
  return guard(info.Env(), [&] {
    os::leave_process_group();
    return info.Env().Undefined();
  });
}

Napi::Value process_status(const Napi::CallbackInfo& info) {
  return guard(info.Env(), [&]() -> Napi::Value {
    const auto status = os::process_status(static_cast<int32_t>(integer_argument(info, 0, "pid", 1, INT32_MAX)));
    if (!status) return info.Env().Undefined();
    Napi::Object object = Napi::Object::New(info.Env());
    object.Set("state", std::string(1, status->state));
    object.Set("parent", status->parent);
    object.Set("threads", status->threads);
    object.Set("startTime", std::to_string(status->start_time));
    return object;
  });
}

Napi::Value proven_dead(const Napi::CallbackInfo& info) {
  return guard(info.Env(), [&] {
    const auto pid = static_cast<int32_t>(integer_argument(info, 0, "pid", 1, INT32_MAX));
    return Napi::Boolean::New(info.Env(), os::proven_dead(pid, checked_unsigned(info[1], "startTime", 10)));
  });
}

Napi::Value peer_credentials(const Napi::CallbackInfo& info) {
  return guard(info.Env(), [&] {
    const auto peer = os::peer_credentials(static_cast<int>(integer_argument(info, 0, "fd", 0, INT32_MAX)));
    Napi::Object object = Napi::Object::New(info.Env());
    object.Set("pid", peer.pid);
    object.Set("uid", peer.uid);
    object.Set("gid", peer.gid);
    return object;
  });
}

Napi::Value available_memory(const Napi::CallbackInfo& info) {
  return guard(info.Env(), [&] { return Napi::Number::New(info.Env(), static_cast<double>(os::available_memory())); });
}

}  // namespace

void init_os(Napi::Env env, Napi::Object exports) {
  Napi::Object object = Napi::Object::New(env);
  object.Set("dieWithParent", Napi::Function::New(env, die_with_parent));
  object.Set("leaveProcessGroup", Napi::Function::New(env, leave_process_group));
  object.Set("processStatus", Napi::Function::New(env, process_status));
  object.Set("provenDead", Napi::Function::New(env, proven_dead));
  object.Set("peerCredentials", Napi::Function::New(env, peer_credentials));
  object.Set("availableMemory", Napi::Function::New(env, available_memory));
  exports.Set("os", object);
}

}  // namespace sinkflex
