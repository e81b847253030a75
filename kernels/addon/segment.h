// How other classes of the addon reach the segment behind a JavaScript VersionedSegment.
#ifndef SINKFLEX_ADDON_SEGMENT_H
#define SINKFLEX_ADDON_SEGMENT_H

#include <napi.h>

#include <memory>

#include "../memory/versioned_segment.h"

namespace sinkflex {

// The segment behind a native VersionedSegment wrapper (what `addon.VersionedSegment.create/open` returned).
// Throws a JavaScript TypeError for anything else, and SINKFLEX_STORE_CLOSED after close().
std::shared_ptr<VersionedSegment> UnwrapSegment(const Napi::Value& value);

}  // namespace sinkflex

#endif
