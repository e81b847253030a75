// Glue of the process primitives (kernels/os).
#ifndef SINKFLEX_ADDON_OS_H
#define SINKFLEX_ADDON_OS_H

#include <napi.h>

namespace sinkflex {

void RegisterOs(Napi::Env env, Napi::Object exports);

}  // namespace sinkflex

#endif
