// A versioned segment: one control block and a few equally large slots in shared memory, of which one is current.
// Publishing flips the current slot by one atomic store, whatever a slot's size; readers of any process pin the version
// that they read.
//
// Protocol (layout in control_block.h):
//   pin      write the version into this reader's row, full fence, re-read current; equal: held, else again.
//   write    hold the writer lock; take a slot that is neither current nor in any row (full fence before the scan).
//   publish  current.store({lineage, version, slot}); wake the waiters; give the lock back.
// A reader that wrote its row before the scan is seen by the writer; one that wrote it later re-reads a current that
// has moved on. Rows and the lock carry {pid, start time} and are taken from their owner only once that process is
// proven dead.
//
// Threads: VersionedSegment is safe from any thread; a Reader or a Writing belongs to one thread at a time.
#ifndef SINKFLEX_MEMORY_VERSIONED_SEGMENT_H
#define SINKFLEX_MEMORY_VERSIONED_SEGMENT_H

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sinkflex {

// Ordered by (lineage, version): each publish must be greater than the last. A restore takes the next lineage and any
// version.
struct Version {
  uint32_t lineage = 0;  // < 2^24
  uint32_t version = 0;
  uint32_t slot = 0;
  friend bool operator==(const Version&, const Version&) = default;
};

// How another process finds the segment while its creator lives: /proc/<pid>/fd/<control_fd> (elsewhere: shm names from
// the nonce).
struct SegmentAddress {
  int32_t pid = 0;
  uint64_t start_time = 0;  // of that process, see os/process.h; guards against a reused pid
  int32_t control_fd = -1;
  uint64_t nonce = 0;  // stands in the control block; guards against a reused descriptor
};

struct SegmentOptions {
  uint64_t slot_bytes = 0;
  uint32_t slots = 3;      // allocated and faulted in at once
  uint32_t max_slots = 8;  // a writer that finds all slots pinned adds one up to this
  uint32_t readers = 64;   // rows; a pin takes one
};

struct WaitOptions {
  std::chrono::milliseconds timeout{30000};
  const std::atomic<bool>* stop = nullptr;  // set: return or throw SINKFLEX_STORE_STOPPED within 100 ms
  std::function<void(const std::string&)> on_slow =
      {};  // begin_write: told once when it has waited a second (default: stderr)
};

struct HeldPin {
  int32_t pid = 0;
  uint32_t incarnation = 0;
  Version version;
};

class VersionedSegment : public std::enable_shared_from_this<VersionedSegment> {
 public:
  class Reader;
  class Writing;

  static std::shared_ptr<VersionedSegment> create(const SegmentOptions& options);
  static std::shared_ptr<VersionedSegment> open(
      const SegmentAddress& address);  // SINKFLEX_STORE_GONE when the creator is dead
  ~VersionedSegment();
  VersionedSegment(const VersionedSegment&) = delete;
  VersionedSegment& operator=(const VersionedSegment&) = delete;

  const SegmentAddress& address() const noexcept;
  uint64_t slot_bytes() const noexcept;
  uint32_t slots() const noexcept;  // allocated now
  uint32_t max_slots() const noexcept;
  std::optional<Version> current() const noexcept;  // empty before the first publish

  // Blocks until current.version > after, or current.lineage differs from `lineage` where one is given (a restore may
  // go back). Any publish: ({}, -1). Empty on timeout or stop. Native threads only: waits in slices of at most 100 ms.
  std::optional<Version> wait_for_version(std::optional<uint32_t> lineage, int64_t after,
                                          const WaitOptions& options) const;
  // When the newest version was flipped, CLOCK_MONOTONIC nanoseconds, comparable between processes
  // (process.hrtime.bigint()); 0: never.
  uint64_t published_at() const noexcept;

  // Takes the writer lock and a slot that nobody can see. Blocks: native threads only. Recovers from a writer that
  // died. SINKFLEX_STORE_FULL when all slots stay pinned until the deadline, SINKFLEX_STORE_BUSY when another writer
  // holds the lock until then, SINKFLEX_MEMORY_SHORT when the machine has no room for another slot.
  Writing begin_write(const WaitOptions& options = {});

  std::vector<HeldPin> pins() const;  // who holds what now; for messages and tests

 private:
  struct State;
  explicit VersionedSegment(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// One row. An engine owns one for its life and calls pin() before each decode step.
class VersionedSegment::Reader {
 public:
  // Claims a row; takes rows of dead processes back. SINKFLEX_STORE_READERS when all are held by the living.
  explicit Reader(std::shared_ptr<VersionedSegment> segment, uint32_t incarnation = 0);
  ~Reader();
  Reader(Reader&&) noexcept;
  Reader& operator=(Reader&&) noexcept;

  // Pins the newest version and returns its bytes, [slot_bytes]. Costs one load when nothing new was published;
  // otherwise gives up the version held so far. SINKFLEX_STORE_EMPTY when nothing was published yet.
  const uint8_t* pin(Version* version);
  bool is_current() const noexcept;                // the pinned version is still the newest
  std::optional<Version> pinned() const noexcept;  // what this row holds
  void release() noexcept;                         // lets go of the version, keeps the row
  const std::shared_ptr<VersionedSegment>& segment() const noexcept { return segment_; }

 private:
  std::shared_ptr<VersionedSegment> segment_;
  uint32_t row_ = 0;
  uint64_t held_ = 0;  // the packed version in the row
};

// The writer lock and one invisible slot. Destroyed without publish: abort.
class VersionedSegment::Writing {
 public:
  ~Writing();
  Writing(Writing&&) noexcept;
  Writing& operator=(Writing&&) noexcept;

  uint32_t slot() const noexcept { return slot_; }
  uint8_t* data() const noexcept { return data_; }  // [slot_bytes]; holds whatever an older version left there
  // SINKFLEX_STORE_ORDER unless (lineage, version) is greater than current's; the slot then stays writable. After it:
  // done().
  void publish(uint32_t lineage, uint32_t version);
  void abort() noexcept;
  bool done() const noexcept { return segment_ == nullptr; }
  const std::shared_ptr<VersionedSegment>& segment() const noexcept { return segment_; }

 private:
  friend class VersionedSegment;
  Writing(std::shared_ptr<VersionedSegment> segment, uint32_t slot, uint8_t* data);
  std::shared_ptr<VersionedSegment> segment_;
  uint32_t slot_ = 0;
  uint8_t* data_ = nullptr;
};

}  // namespace sinkflex

#endif
