// What the files of addon/ share: the init function of each exported class, and how C++ errors become JavaScript ones.
// The glue holds no process-wide JavaScript handles: the addon is loaded once for each environment (main thread and
// workers).
#ifndef SINKFLEX_ADDON_H
#define SINKFLEX_ADDON_H

#include <napi.h>

#include <exception>
#include <new>
#include <string>

#include "../error.h"

namespace sinkflex {

// Each adds its classes and functions to `exports`.
void init_segment(Napi::Env env, Napi::Object exports);        // VersionedSegment
void init_shared_memory(Napi::Env env, Napi::Object exports);  // SharedMemory
void init_shared_block(Napi::Env env, Napi::Object exports);   // BlockPool, SharedBlock, openBlock
void init_os(Napi::Env env, Napi::Object exports);             // os primitives
void init_engine(Napi::Env env, Napi::Object exports);         // Engine
void init_collective(Napi::Env env, Napi::Object exports);     // CollectiveGroup, CollectiveMember
void init_attention(Napi::Env env, Napi::Object exports);      // sinkAttention, sinkAttentionBackward
void init_delta(Napi::Env env, Napi::Object exports);          // encodeDelta, applyDelta
void init_backend(Napi::Env env, Napi::Object exports);        // openBackend
void init_measure(Napi::Env env, Napi::Object exports);        // measureFmaPeak, measureLinear

inline Napi::Error make_error(Napi::Env env, const std::string& code, const std::string& message) {
  Napi::Error error = Napi::Error::New(env, message);
  error.Set("code", Napi::String::New(env, code));
  return error;
}

// Runs `body`; a sinkflex::Error (or any std::exception) becomes a JavaScript error with its code. No C++ exception of
// ours crosses the boundary; a Napi::Error passes through, node-addon-api converts it.
template <typename Body>
auto guard(Napi::Env env, Body&& body) -> decltype(body()) {
  try {
    return body();
  } catch (const Napi::Error&) {
    throw;
  } catch (const Error& e) {
    throw make_error(env, e.code, e.what());
  } catch (const std::bad_alloc&) {
    throw make_error(env, "SINKFLEX_OUT_OF_MEMORY", "out of memory");
  } catch (const std::exception& e) {
    throw make_error(env, "SINKFLEX_INTERNAL", e.what());
  }
}

}  // namespace sinkflex
#endif
