#include "backend.h"

#include <dlfcn.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>

#include "addon.h"
#include "arguments.h"

namespace sinkflex {

const sfx_backend* cpu_backend() {
  const char* isa = std::getenv("SINKFLEX_CPU");
  const sfx_backend* backend = sfx_cpu_backend(isa && *isa ? isa : nullptr);
  if (!backend)
    throw Error("SINKFLEX_CPU_UNSUPPORTED",
                std::string("this machine or build cannot run SINKFLEX_CPU=") + (isa ? isa : "(default)"));
  if (backend->version != SFX_BACKEND_VERSION)
    throw Error("SINKFLEX_ADDON_MISMATCH", "the compute backend is of another version");
  return backend;
}

namespace {

template <class Function>
Function symbol_of(const std::string& path, const char* name) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw Error("SINKFLEX_BACKEND_MISSING", std::string("the backend library does not load: ") + dlerror());
  const auto function = reinterpret_cast<Function>(dlsym(library, name));
  if (!function)
    throw Error("SINKFLEX_BACKEND_MISMATCH", path + " is no backend library of this version: it exports no " + name);
  return function;
}
Error refusal(int32_t status, const std::string& path, const char* message) {
  return Error(status == SFX_BAD_ARGUMENT ? "SINKFLEX_BACKEND_MISMATCH" : "SINKFLEX_DEVICE_UNAVAILABLE",
               path + ": " + message);
}

}  // namespace

const sfx_backend* open_backend(const std::string& path, int32_t device) {
  static std::mutex mutex;
  static std::map<std::pair<std::string, int32_t>, const sfx_backend*> opened;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto known = opened.find({path, device});
  if (known != opened.end()) return known->second;
  const auto open = symbol_of<sfx_backend_open_function>(path, "sfx_backend_open");
  int32_t status = SFX_OK;
  char message[2048] = "";
  const sfx_backend* backend = open(SFX_BACKEND_VERSION, device, &status, message, sizeof message);
  if (!backend) throw refusal(status, path, message);
  opened[{path, device}] = backend;
  return backend;
}

const sfx_backend* backend_of(const Napi::Object& options) {
  if (options.Get("library").IsUndefined()) return cpu_backend();
  return open_backend(string_of(options.Get("library"), "library"),
                      static_cast<int32_t>(integer_of(options.Get("device"), "device", 0, 1 << 10)));
}

namespace {

// probeBackend(path, device) -> what the device is
Napi::Value probe(const Napi::CallbackInfo& info) {
  return guard(info.Env(), [&]() -> Napi::Value {
    const std::string path = string_of(info[0], "path");
    const auto device = static_cast<int32_t>(integer_of(info[1], "device", 0, 1 << 10));
    char message[2048] = "";
    const int32_t status = symbol_of<sfx_backend_probe_function>(path, "sfx_backend_probe")(SFX_BACKEND_VERSION, device,
                                                                                            message, sizeof message);
    if (status != SFX_OK) throw refusal(status, path, message);
    return Napi::String::New(info.Env(), message);
  });
}

}  // namespace

void init_backend(Napi::Env env, Napi::Object exports) {
  exports.Set("probeBackend", Napi::Function::New(env, probe, "probeBackend"));
}

}  // namespace sinkflex
