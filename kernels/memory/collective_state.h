// What a process holds of a collective group.
#ifndef SINKFLEX_MEMORY_COLLECTIVE_STATE_H
#define SINKFLEX_MEMORY_COLLECTIVE_STATE_H

#include "../os/shared_memory.h"
#include "collective_block.h"

namespace sinkflex {

struct CollectiveGroup::State {
  CollectiveAddress address{};
  bool creator = false;
  os::Descriptor fd;
  os::Mapping map;

  ~State();
  CollectiveBlock& block() const { return *reinterpret_cast<CollectiveBlock*>(map.data()); }
  std::string object_name() const;
};

}  // namespace sinkflex

#endif
