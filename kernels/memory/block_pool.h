// The shared blocks of one process: those in use, those that readers still have, and those that wait to be used again
// with their pages in place (taking fresh pages costs more than the copy). What the processes of a run have together
// is counted in the account, a small shared region that the run's driver makes.
#ifndef SINKFLEX_MEMORY_BLOCK_POOL_H
#define SINKFLEX_MEMORY_BLOCK_POOL_H

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "shared_block.h"

namespace sinkflex {

constexpr uint32_t kAccountRows = 1022;

// All zero but for the limit.
struct Account {
  struct Row {
    std::atomic<uint64_t> holder;  // os::Identity of a process
    std::atomic<uint64_t> bytes;   // of its blocks
  };
  std::atomic<uint64_t> limit;
  uint64_t unused[3];
  Row rows[kAccountRows];

  uint64_t used() const;
  // Of processes that are dead: their memory is free.
  void forget_dead();
};
static_assert(sizeof(Account) <= 16384);

class BlockPool : public std::enable_shared_from_this<BlockPool> {
 public:
  using Clock = std::chrono::steady_clock;

  // A block in use. When the last lease of it goes, the content ends and the block waits for its readers.
  class Lease {
   public:
    Lease(std::shared_ptr<BlockPool> pool, SharedBlock* block) : pool_(std::move(pool)), block_(block) {}
    ~Lease() { pool_->give(block_); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    SharedBlock& block() const { return *block_; }
    SharedBlock* operator->() const { return block_; }

   private:
    std::shared_ptr<BlockPool> pool_;
    SharedBlock* block_;
  };

  struct Stats {
    uint64_t limit, host_used;           // bytes, of the run on this host
    uint64_t used, free, waiting, held;  // bytes of this process: all, and by what they are at
    uint64_t blocks;
  };

  // The pool of this process for the account; one for all of its threads.
  static std::shared_ptr<BlockPool> join(const RegionAddress& account);
  // A thread has done. After the last one nothing is kept that is not in use.
  void leave();
  ~BlockPool();

  // SINKFLEX_OBJECT_STORE_FULL when the run has no more than `limit - reserve` to give; kNoLimit: only the machine's
  // memory counts.
  static constexpr uint64_t kNoLimit = uint64_t{1} << 46;
  std::shared_ptr<Lease> take(uint64_t bytes, uint64_t reserve);
  // Nothing that is in flight on the channel is sure to arrive any more.
  void channel_gone(uint64_t channel);
  // Looks which blocks have come back, and lets go of what was not used for a while. Call now and then.
  void trim();
  Stats stats();

 private:
  enum class State { kHeld, kWaiting, kFree };
  struct Entry {
    std::unique_ptr<SharedBlock> block;
    State state = State::kHeld;
    Clock::time_point since{};  // of the state
    Clock::time_point lost{};   // its channel went while it was in flight; zero: no
  };

  explicit BlockPool(std::shared_ptr<SharedRegion> account);
  Account& account() const { return *reinterpret_cast<Account*>(account_->data()); }
  void give(SharedBlock* block);
  void count(int64_t bytes);
  // With the mutex held:
  SharedBlock* find(uint64_t bytes);
  void set_state(Entry& entry, State state);
  void destroy(SharedBlock* block);
  void destroy_free(uint64_t wanted);

  std::shared_ptr<SharedRegion> account_;
  Account::Row* row_ = nullptr;
  std::mutex mutex_;
  std::unordered_map<SharedBlock*, Entry> blocks_;
  std::multimap<uint64_t, SharedBlock*> idle_;     // free ones by capacity
  std::multimap<uint64_t, SharedBlock*> waiting_;  // by capacity
  unsigned joined_ = 0;
  uint64_t used_ = 0, free_bytes_ = 0, waiting_bytes_ = 0;
};

}  // namespace sinkflex

#endif
