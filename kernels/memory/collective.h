// Collective operations among members in any threads and processes of one host, over shared memory. Every operation is
// a row of meetings: all stage a chunk, meet, and go on with what the others staged. A reduction adds in the order of
// ranks, so its bits depend on the members' number and data only, never on timing, chunks or who computed which slice.
// When a member dies, leaves, is aborted or runs out of time, the group is broken for good: every member gets a
// CollectiveBroken with the same reason, in the operation under way or in its next one. One atomic word decides each
// meeting for all: either everybody passes it, or nobody.
#ifndef SINKFLEX_MEMORY_COLLECTIVE_H
#define SINKFLEX_MEMORY_COLLECTIVE_H

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "../error.h"

namespace sinkflex {

constexpr uint32_t kMemberLimit = 256;

// Where a group is: good while the process `pid` holds it open, which it must until all have joined.
struct CollectiveAddress {
  int32_t pid;
  uint64_t start_time;
  int32_t fd;
  uint64_t nonce;
};

enum class Ending : uint32_t { died = 1, left = 2, deadline = 3, aborted = 4 };
enum class Fold : uint32_t { sum = 0, mean = 1, min = 2, max = 3 };

struct CollectiveBroken : Error {
  Ending reason;
  uint32_t rank;                  // whose end broke it
  int32_t pid;                    // of that member; 0: it had not joined
  std::vector<uint32_t> missing;  // who had not come to the meeting
  CollectiveBroken(Ending reason, uint32_t rank, int32_t pid, std::vector<uint32_t> missing);
};

class CollectiveGroup {
 public:
  static std::shared_ptr<CollectiveGroup> create(uint32_t members, uint64_t chunk_bytes);
  static std::shared_ptr<CollectiveGroup> open(const CollectiveAddress& address);
  ~CollectiveGroup();

  const CollectiveAddress& address() const noexcept;
  uint32_t members() const noexcept;
  // All have joined, or the group is broken: the creator need not hold it any longer.
  bool settled() const noexcept;

 private:
  friend class CollectiveMember;
  struct State;
  explicit CollectiveGroup(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// How long a member waits for the others. Past any of the three, it breaks the group.
struct CollectiveWait {
  std::chrono::steady_clock::time_point deadline;
  const std::atomic<bool>* stop = nullptr;   // its environment ends: for the others it died
  const std::atomic<bool>* abort = nullptr;  // its caller gave up
};

// One member; one operation at a time.
class CollectiveMember {
 public:
  // SINKFLEX_BAD_ARGUMENT when the rank is taken.
  CollectiveMember(std::shared_ptr<CollectiveGroup> group, uint32_t rank);
  ~CollectiveMember();  // without leave(): for the others it died
  CollectiveMember(const CollectiveMember&) = delete;
  CollectiveMember& operator=(const CollectiveMember&) = delete;

  uint32_t rank() const noexcept { return rank_; }
  uint32_t members() const noexcept { return members_; }
  void leave() noexcept;

  // Each throws CollectiveBroken, or Error SINKFLEX_COLLECTIVE_MISMATCH (for all members, which stay a group).
  void barrier(const CollectiveWait& wait);
  // data[i] = fold over ranks r, ascending, of data_r[i]
  void all_reduce(float* data, uint64_t count, Fold fold, const CollectiveWait& wait);
  // out = this rank's slice [count r / n, count (r + 1) / n) of the reduction of `in`
  void reduce_scatter(const float* in, uint64_t count, float* out, Fold fold, const CollectiveWait& wait);
  // out = the members' `in`, each of `bytes`, in the order of ranks
  void all_gather(const uint8_t* in, uint64_t bytes, uint8_t* out, const CollectiveWait& wait);
  void broadcast(uint8_t* data, uint64_t bytes, uint32_t root, const CollectiveWait& wait);

  // For tests: called just before a member comes to a meeting and just after it passed it.
  std::function<void()> probe;

 private:
  void declare(uint32_t kind, uint32_t detail, uint64_t size);
  void meet(const CollectiveWait& wait);
  void agree() const;
  void breaks(Ending reason, uint32_t rank) noexcept;
  void give_up_on_the_dead(uint32_t phase) noexcept;
  bool all_arrived(uint32_t phase) const noexcept;
  [[noreturn]] void throw_broken(uint32_t word, uint32_t phase) const;
  uint32_t next() const noexcept;

  std::shared_ptr<CollectiveGroup> group_;
  const uint32_t rank_;
  const uint32_t members_;
  const bool spins_;  // a core for each member: worth looking for a moment before sleeping
  uint32_t phase_ = 0;
  uint32_t operation_ = 0;
};

}  // namespace sinkflex

#endif
