// What the members of a collective share: one object of shared memory with this block, a row for each member, then the
// areas that data passes through. Only lock-free atomics decide, so a member may die between any two instructions.
#ifndef SINKFLEX_MEMORY_COLLECTIVE_BLOCK_H
#define SINKFLEX_MEMORY_COLLECTIVE_BLOCK_H

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "../os/process.h"
#include "collective.h"

namespace sinkflex {

constexpr uint64_t kCollectiveMagic = 0x31304c4c4f584653;  // "SFXOLL01": change the digits with the layout

// One word says how far the group is and whether it goes on, so that one compare-and-swap decides each meeting for
// everybody: {broken: 1, reason: 3, rank: 8, phase: 20}. `phase` is the last meeting that all members reached.
constexpr uint32_t kPhaseBits = 20;
constexpr uint32_t kPhaseMask = (1u << kPhaseBits) - 1;
constexpr uint32_t kBrokenBit = 1u << 31;
constexpr uint32_t broken_word(uint32_t word, Ending reason, uint32_t rank) {
  return (word & kPhaseMask) | (rank << kPhaseBits) | (static_cast<uint32_t>(reason) << 28) | kBrokenBit;
}
constexpr bool is_broken(uint32_t word) { return (word & kBrokenBit) != 0; }
constexpr Ending reason_of(uint32_t word) { return static_cast<Ending>((word >> 28) & 7); }
constexpr uint32_t rank_of(uint32_t word) { return (word >> kPhaseBits) & 0xff; }
// Members are never more than one meeting apart, so the counter may wrap.
constexpr bool reached(uint32_t word, uint32_t phase) { return ((word - phase) & kPhaseMask) <= kPhaseMask / 2; }

// What a member is about to do; all must say the same.
struct Intent {
  uint32_t kind;
  uint32_t detail;  // which reduction, or the root
  uint64_t size;    // elements or bytes
  bool operator==(const Intent&) const = default;
};

struct alignas(64) MemberRow {
  std::atomic<os::Identity> owner{0};  // 0: has not joined
  std::atomic<uint32_t> arrived{0};    // the meeting that the member has come to
  // By the parity of the operation: one ahead may write its next intent while others still read this one.
  Intent intents[2];
};

struct CollectiveBlock {
  uint64_t magic;
  uint64_t nonce;
  uint64_t chunk_bytes;  // a multiple of 4096
  uint32_t members;
  alignas(64) std::atomic<uint32_t> state{0};  // also the futex

  MemberRow* rows() { return reinterpret_cast<MemberRow*>(this + 1); }

  static size_t head_bytes(uint32_t members) {
    return (sizeof(CollectiveBlock) + members * sizeof(MemberRow) + 4095) / 4096 * 4096;
  }
  static size_t bytes(uint32_t members, uint64_t chunk) { return head_bytes(members) + (2ull * members + 2) * chunk; }

  // What is staged before an even meeting is read after it while the next goes into the other half.
  uint8_t* staging(uint32_t phase, uint32_t rank) {
    return reinterpret_cast<uint8_t*>(this) + head_bytes(members) + ((phase & 1) * members + rank) * chunk_bytes;
  }
  float* result(uint32_t phase) {
    return reinterpret_cast<float*>(reinterpret_cast<uint8_t*>(this) + head_bytes(members) +
                                    (2ull * members + (phase & 1)) * chunk_bytes);
  }
};

static_assert(sizeof(CollectiveBlock) % alignof(MemberRow) == 0);

}  // namespace sinkflex

#endif
