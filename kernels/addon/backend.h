// Which operators a call runs on: the CPU's, or those of a backend library that is opened here.
#ifndef SINKFLEX_ADDON_BACKEND_H
#define SINKFLEX_ADDON_BACKEND_H

#include <napi.h>

#include <string>

#include "../backend.h"

namespace sinkflex {

// Of this machine, or as SINKFLEX_CPU says; throws where there is none.
const sfx_backend* cpu_backend();

// The library's table for a device. Opened once a process and kept; throws SINKFLEX_BACKEND_MISSING (no such library,
// or one that does not load), SINKFLEX_BACKEND_MISMATCH, SINKFLEX_DEVICE_UNAVAILABLE (no driver, no such GPU, too old).
const sfx_backend* open_backend(const std::string& path, int32_t device);

// As a call's options `library` (absent: the CPU) and `device` say.
const sfx_backend* backend_of(const Napi::Object& options);

}  // namespace sinkflex
#endif
