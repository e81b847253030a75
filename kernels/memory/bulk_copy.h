// Copying much memory: by several threads, and past the caches where the data would not stay in them anyway.
#ifndef SINKFLEX_MEMORY_BULK_COPY_H
#define SINKFLEX_MEMORY_BULK_COPY_H

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sinkflex {

struct CopyPiece {
  uint8_t* to;
  const uint8_t* from;
  size_t bytes;
};

// The pieces don't overlap. `threads` 0: chosen by size.
void bulk_copy(const std::vector<CopyPiece>& pieces, unsigned threads = 0);

}  // namespace sinkflex

#endif
