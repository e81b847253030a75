// What one process holds of a segment: its mappings, and the descriptors with which it maps slots that are added later.
#ifndef SINKFLEX_MEMORY_SEGMENT_STATE_H
#define SINKFLEX_MEMORY_SEGMENT_STATE_H

#include <array>
#include <atomic>
#include <mutex>
#include <string>

#include "../os/shared_memory.h"
#include "control_block.h"
#include "versioned_segment.h"

// Between two steps of the protocol. Native tests are built with SINKFLEX_STRETCH, which gives the processor away there
// every now and then: the windows are a few nanoseconds wide, and no test would meet them otherwise. Nothing in the
// addon.
#ifdef SINKFLEX_STRETCH
#include <sched.h>
inline void sinkflex_stretch() {
  static thread_local uint32_t state = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(&state));
  state = state * 1664525u + 1013904223u;
  if (state >> 28 == 0) sched_yield();
}
#else
inline void sinkflex_stretch() {}
#endif

namespace sinkflex {

struct VersionedSegment::State {
  SegmentAddress address;
  bool creator = false;
  os::Descriptor control_fd;
  os::Mapping control_map;
  std::array<os::Descriptor, kSlotLimit> slot_fds;
  std::array<os::Mapping, kSlotLimit> slot_maps;
  std::array<std::atomic<uint8_t*>, kSlotLimit> slot_data{};  // null: not mapped yet
  std::mutex mapping;

  ~State();
  ControlBlock& control() const { return *reinterpret_cast<ControlBlock*>(control_map.data()); }
  uint8_t* slot(uint32_t index);             // maps it on first use
  std::string object_name(int index) const;  // -1: the control block

  // True when some row holds this slot. Clears rows of dead processes that do. Fences first.
  bool slot_pinned(uint32_t index);
  void recover_slots();                  // with the lock in hand: states follow from `current`
  int32_t take_slot();                   // with the lock in hand: a free slot or -1; adds one when all are pinned
  bool take_lock(os::Identity* holder);  // false: `holder` lives and has it
  void return_lock();
  std::string describe_pins() const;
};

// Takes a row over from a dead owner and empties it: the one that swaps itself in is the only one that may touch the
// row.
bool clear_dead_row(ReaderRow& row, os::Identity owner);

}  // namespace sinkflex

#endif
