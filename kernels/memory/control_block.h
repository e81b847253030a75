// What the processes of a segment share besides the slots: lives in its own page of shared memory, only lock-free
// atomics that are written in an order that leaves a valid state if the writer dies between any two instructions.
#ifndef SINKFLEX_MEMORY_CONTROL_BLOCK_H
#define SINKFLEX_MEMORY_CONTROL_BLOCK_H

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "../os/process.h"
#include "versioned_segment.h"

namespace sinkflex {

constexpr uint64_t kSegmentMagic = 0x3130474553584653;  // "SFXSEG01": change the digits with the layout
constexpr uint32_t kSlotLimit = 64;                     // max_slots is at most this
constexpr uint32_t kReaderLimit = 4096;
constexpr uint64_t kNoVersion = ~uint64_t{0};

// {lineage: 24, version: 32, slot: 8} in a word: one store flips it, and word >> 8 orders versions.
constexpr uint64_t pack(const Version& v) { return (uint64_t{v.lineage} << 40) | (uint64_t{v.version} << 8) | v.slot; }
constexpr Version unpack(uint64_t word) {
  return {static_cast<uint32_t>(word >> 40), static_cast<uint32_t>(word >> 8), static_cast<uint32_t>(word & 0xff)};
}
constexpr uint32_t kLineageLimit = (1u << 24) - 1;  // the largest lineage is kNoVersion's

enum SlotState : uint32_t { kFree = 0, kWriting = 1, kReady = 2, kCurrent = 3 };

struct SlotRecord {
  std::atomic<uint32_t> state{kFree};
  int32_t fd = -1;                     // in the creator; set before the segment is shared
  std::atomic<uint64_t> published{0};  // CLOCK_MONOTONIC nanoseconds of the flip to what the slot holds
};

// A row has an owner from the claim to the end of its Reader. 0: free.
struct alignas(64) ReaderRow {
  std::atomic<os::Identity> owner{0};
  std::atomic<uint64_t> pinned{kNoVersion};
  std::atomic<uint32_t> incarnation{0};
};

struct ControlBlock {
  uint64_t magic;
  uint64_t nonce;
  uint64_t slot_bytes;
  uint32_t max_slots;
  uint32_t readers;
  SlotRecord slots[kSlotLimit];

  alignas(64) std::atomic<uint64_t> current{kNoVersion};  // the flip
  alignas(64) std::atomic<uint32_t> flips{0};             // futex: changes after each flip
  alignas(64) std::atomic<os::Identity> writer{0};        // the writer lock: its owner, 0 = free
  std::atomic<uint32_t> slot_count{0};                    // slots with memory
  std::atomic<uint32_t> writer_waits{0};                  // 1: a writer sleeps on `returned`
  std::atomic<uint32_t> returned{0};  // futex: changes when a pin or the lock was given back and someone waits

  ReaderRow* rows() { return reinterpret_cast<ReaderRow*>(this + 1); }
  static size_t bytes(uint32_t readers) { return sizeof(ControlBlock) + readers * sizeof(ReaderRow); }

  std::optional<Version> version() const {
    const uint64_t word = current.load(std::memory_order_acquire);
    if (word == kNoVersion) return std::nullopt;
    return unpack(word);
  }
  // A pin or the lock was given back. The caller's store must be sequentially consistent: a waiter raises the flag,
  // then looks.
  void wake_writer();
};

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);
static_assert(sizeof(ControlBlock) % alignof(ReaderRow) == 0);

}  // namespace sinkflex

#endif
