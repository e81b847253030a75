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

const sfx_backend* open_backend(const std::string& path, int32_t device) {
  static std::mutex mutex;
  static std::map<std::pair<std::string, int32_t>, const sfx_backend*> opened;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto known = opened.find({path, device});
  if (known != opened.end()) return known->second;
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw Error("SINKFLEX_BACKEND_MISSING", std::string("the backend library does not load: ") + dlerror());
  const auto open = reinterpret_cast<sfx_backend_open_function>(dlsym(library, "sfx_backend_open"));
  if (!open) throw Error("SINKFLEX_BACKEND_MISMATCH", path + " is no backend library: it exports no sfx_backend_open");
  int32_t status = SFX_OK;
  char message[2048] = "";
  const sfx_backend* backend = open(SFX_BACKEND_VERSION, device, &status, message, sizeof message);
  if (!backend)
    throw Error(status == SFX_BAD_ARGUMENT ? "SINKFLEX_BACKEND_MISMATCH" : "SINKFLEX_DEVICE_UNAVAILABLE",
                path + ": " + message);
  opened[{path, device}] = backend;
  return backend;
}

const sfx_backend* backend_of(const Napi::Object& options) {
  if (options.Get("library").IsUndefined()) return cpu_backend();
  return open_backend(string_of(options.Get("library"), "library"),
                      static_cast<int32_t>(integer_of(options.Get("device"), "device", 0, 1 << 10)));
}

namespace {

// openBackend(path, device) -> its name
Napi::Value open(const Napi::CallbackInfo& info) {
  return guard(info.Env(), [&]() -> Napi::Value {
    const std::string path = string_of(info[0], "path");
    const auto device = static_cast<int32_t>(integer_of(info[1], "device", 0, 1 << 10));
    return Napi::String::New(info.Env(), open_backend(path, device)->name);
  });
}

}  // namespace

void init_backend(Napi::Env env, Napi::Object exports) {
  exports.Set("openBackend", Napi::Function::New(env, open, "openBackend"));
}

}  // namespace sinkflex
