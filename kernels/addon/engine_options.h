// What the native engine is made from, read out of plain objects.
#ifndef SINKFLEX_ADDON_ENGINE_OPTIONS_H
#define SINKFLEX_ADDON_ENGINE_OPTIONS_H

#include <napi.h>

#include <vector>

#include "../model/trainer.h"

namespace sinkflex {

Config read_config(const Napi::Object& config);
std::vector<TensorSpec> read_tensors(const Napi::Value& tensors);
// {bytes, slot, seed, m, v, mScale, vScale: Float64Array with -1 where there is none}
Moments read_moment_layout(const Napi::Object& moments, size_t tensors);

}  // namespace sinkflex
#endif
