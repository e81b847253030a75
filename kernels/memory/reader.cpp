// Rows: claiming, pinning, giving back; and taking rows back from the dead.
#include <utility>

#include "../error.h"
#include "../os/futex.h"
#include "segment_state.h"

namespace sinkflex {

bool clear_dead_row(ReaderRow& row, os::Identity owner) {
  // Two that find the same dead owner must not both clear: the second would wipe what a new owner pinned meanwhile.
  if (!row.owner.compare_exchange_strong(owner, os::own_identity(), std::memory_order_acq_rel)) return false;
  sinkflex_stretch();
  row.pinned.store(kNoVersion, std::memory_order_seq_cst);
  sinkflex_stretch();
  row.owner.store(0, std::memory_order_release);
  return true;
}

void ControlBlock::wake_writer() {
  if (writer_waits.load(std::memory_order_seq_cst) == 0) return;
  writer_waits.store(0, std::memory_order_relaxed);
  returned.fetch_add(1, std::memory_order_release);
  os::futex_wake_all(&returned);
}

VersionedSegment::Reader::Reader(std::shared_ptr<VersionedSegment> segment, uint32_t incarnation)
    : segment_(std::move(segment)), held_(kNoVersion) {
  ControlBlock& control = segment_->state_->control();
  const os::Identity self = os::own_identity();
  for (const bool take_back : {false, true}) {
    for (row_ = 0; row_ < control.readers; row_++) {
      ReaderRow& row = control.rows()[row_];
      os::Identity owner = row.owner.load(std::memory_order_acquire);
      if (owner != 0 && !(take_back && os::proven_dead(owner) && clear_dead_row(row, owner))) continue;
      owner = 0;
      if (!row.owner.compare_exchange_strong(owner, self, std::memory_order_acq_rel)) continue;
      row.incarnation.store(incarnation, std::memory_order_relaxed);
      return;
    }
  }
  throw Error("SINKFLEX_STORE_READERS", "all " + std::to_string(control.readers) +
                                            " reader rows of the store are taken (" +
                                            segment_->state_->describe_pins() +
                                            "); release pins, close engines, or raise `readers` when creating it");
}

VersionedSegment::Reader::~Reader() {
  if (segment_ == nullptr) return;
  release();
  segment_->state_->control().rows()[row_].owner.store(0, std::memory_order_release);
}

VersionedSegment::Reader::Reader(Reader&& other) noexcept
    : segment_(std::move(other.segment_)), row_(other.row_), held_(std::exchange(other.held_, kNoVersion)) {}

VersionedSegment::Reader& VersionedSegment::Reader::operator=(Reader&& other) noexcept {
  std::swap(segment_, other.segment_);
  std::swap(row_, other.row_);
  std::swap(held_, other.held_);
  return *this;
}

const uint8_t* VersionedSegment::Reader::pin(Version* version) {
  State& state = *segment_->state_;
  ControlBlock& control = state.control();
  ReaderRow& row = control.rows()[row_];
  const uint64_t before = held_;
  uint64_t newest = control.current.load(std::memory_order_acquire);
  if (newest == kNoVersion) {
    throw Error("SINKFLEX_STORE_EMPTY",
                "nothing was published in the store yet; publish, initialise or load a version first");
  }
  while (held_ != newest) {
    sinkflex_stretch();
    // The writer sees this row before it takes the slot, or this thread sees that current has moved on.
    row.pinned.store(newest, std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    held_ = newest;
    newest = control.current.load(std::memory_order_seq_cst);
  }
  if (before != kNoVersion && before != held_) control.wake_writer();
  *version = unpack(held_);
  return state.slot(version->slot);
}

bool VersionedSegment::Reader::is_current() const noexcept {
  return held_ != kNoVersion && held_ == segment_->state_->control().current.load(std::memory_order_acquire);
}

std::optional<Version> VersionedSegment::Reader::pinned() const noexcept {
  if (held_ == kNoVersion) return std::nullopt;
  return unpack(held_);
}

void VersionedSegment::Reader::release() noexcept {
  if (segment_ == nullptr || held_ == kNoVersion) return;
  ControlBlock& control = segment_->state_->control();
  held_ = kNoVersion;
  control.rows()[row_].pinned.store(kNoVersion, std::memory_order_seq_cst);
  control.wake_writer();
}

}  // namespace sinkflex
