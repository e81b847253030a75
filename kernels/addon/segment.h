// Glue of VersionedSegment: registration, and how other classes of the addon reach the native object behind its wrapper.
#ifndef SINKFLEX_ADDON_SEGMENT_H
#define SINKFLEX_ADDON_SEGMENT_H

#include <napi.h>

#include <memory>

#include "../memory/versioned_segment.h"

namespace sinkflex {

void RegisterSegment(Napi::Env env, Napi::Object exports);

// The segment behind a native VersionedSegment wrapper (the object `native.VersionedSegment.create/open` returned).
// Throws Napi::TypeError for anything else, and a JavaScript error SINKFLEX_STORE_CLOSED after close().
std::shared_ptr<VersionedSegment> UnwrapSegment(const Napi::Value& value);

}  // namespace sinkflex

#endif
