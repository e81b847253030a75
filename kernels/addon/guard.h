// Nothing but JavaScript errors leaves the addon: Guard runs a callback and turns native exceptions into an Error that carries
// `code` (SINKFLEX_...). kernels/errors.ts brands such errors as SinkflexError.
#ifndef SINKFLEX_ADDON_GUARD_H
#define SINKFLEX_ADDON_GUARD_H

#include <napi.h>

#include <exception>
#include <new>
#include <string>
#include <utility>

#include "../os/error.h"

namespace sinkflex {

inline Napi::Error CodedError(Napi::Env env, const std::string& code, const std::string& message) {
  Napi::Error error = Napi::Error::New(env, message);
  error.Set("code", Napi::String::New(env, code));
  return error;
}

template <typename Callback>
auto Guard(Napi::Env env, Callback&& callback) -> decltype(callback()) {
  try {
    return std::forward<Callback>(callback)();
  } catch (const Napi::Error&) {
    throw;
  } catch (const Error& e) {
    throw CodedError(env, e.code(), e.what());
  } catch (const std::bad_alloc&) {
    throw CodedError(env, "SINKFLEX_MEMORY_SHORT", "the native engine could not allocate memory; close other stores or add memory");
  } catch (const std::exception& e) {
    throw CodedError(env, "SINKFLEX_INTERNAL", std::string("unexpected native failure: ") + e.what());
  }
}

}  // namespace sinkflex

#endif
