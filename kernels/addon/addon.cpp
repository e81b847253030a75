// The addon's entry: registers every exported class and function. Runs once for each environment that loads it.
#include "addon.h"

#include <cstdlib>

#include "../backend.h"

namespace sinkflex {

namespace {

// Which instruction set the operators run on; undefined when SINKFLEX_CPU names one that cannot run here.
Napi::Value backend_name(const Napi::CallbackInfo& info) {
  const char* isa = std::getenv("SINKFLEX_CPU");
  const sfx_backend* backend = sfx_cpu_backend(isa && *isa ? isa : nullptr);
  return backend ? Napi::Value(Napi::String::New(info.Env(), backend->name)) : info.Env().Undefined();
}

Napi::Object init(Napi::Env env, Napi::Object exports) {
  init_segment(env, exports);
  init_shared_memory(env, exports);
  init_shared_block(env, exports);
  init_os(env, exports);
  init_engine(env, exports);
  init_collective(env, exports);
  init_attention(env, exports);
  init_delta(env, exports);
  init_backend(env, exports);
  init_measure(env, exports);
  exports.Set("backendName", Napi::Function::New(env, backend_name, "backendName"));
  return exports;
}

}  // namespace

}  // namespace sinkflex

static Napi::Object init_addon(Napi::Env env, Napi::Object exports) { return sinkflex::init(env, exports); }

NODE_API_MODULE(sinkflex, init_addon)
