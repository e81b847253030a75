// Addresses of shared memory as JavaScript objects {pid, startTime, fd, nonce, bytes}.
#ifndef SINKFLEX_ADDON_REGION_H
#define SINKFLEX_ADDON_REGION_H

#include <napi.h>

#include <cstdio>

#include "../memory/shared_region.h"
#include "values.h"

namespace sinkflex {

inline RegionAddress region_address(const Napi::Object& o) {
  return {static_cast<int32_t>(integer_property(o, "pid", 1, INT32_MAX)), unsigned_property(o, "startTime", 10),
          static_cast<int32_t>(integer_property(o, "fd", 0, INT32_MAX)), unsigned_property(o, "nonce", 16),
          integer_property(o, "bytes", 1, uint64_t{1} << 46)};
}

inline Napi::Object region_object(Napi::Env env, const RegionAddress& address) {
  char nonce[17];
  std::snprintf(nonce, sizeof nonce, "%016llx", static_cast<unsigned long long>(address.nonce));
  Napi::Object object = Napi::Object::New(env);
  object.Set("pid", address.pid);
  object.Set("startTime", std::to_string(address.start_time));
  object.Set("fd", address.fd);
  object.Set("nonce", nonce);
  object.Set("bytes", static_cast<double>(address.bytes));
  return object;
}

}  // namespace sinkflex

#endif
