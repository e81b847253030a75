// Native memory that JavaScript sees without a copy.
#ifndef SINKFLEX_ADDON_VIEWS_H
#define SINKFLEX_ADDON_VIEWS_H

#include <napi.h>

#include <cstdint>
#include <memory>
#include <string>

#include "addon.h"

namespace sinkflex {

constexpr uint64_t kViewLimit = uint64_t{1} << 32;  // Node 20 aborts on a larger external ArrayBuffer

// Keeps `owner` alive until the view is collected. Call inside guard.
template <typename Owner>
Napi::ArrayBuffer view_of(Napi::Env env, const void* data, uint64_t bytes, const std::shared_ptr<Owner>& owner) {
  if (bytes > kViewLimit)
    throw Error("SINKFLEX_BAD_ARGUMENT",
                "a view of " + std::to_string(bytes) + " bytes is not possible: the limit is 4 GiB");
  auto* kept = new std::shared_ptr<Owner>(owner);
  return Napi::ArrayBuffer::New(
      env, const_cast<void*>(data), static_cast<size_t>(bytes),
      [](Napi::Env, void*, std::shared_ptr<Owner>* hint) { delete hint; }, kept);
}

}  // namespace sinkflex

#endif
