#include "block_pool.h"

#include <algorithm>

#include "../error.h"
#include "../os/process.h"

namespace sinkflex {
namespace {

using namespace std::chrono_literals;

constexpr auto kFreeFor = 5s;     // an unused block is kept so long
constexpr auto kLostAfter = 30s;  // what was in flight on a closed channel is given up after
constexpr auto kDeadAfter = 1s;   // a block that readers keep so long may be one of the dead
constexpr int kLookAt = 16;       // waiting blocks looked at for one request
constexpr uint64_t kPage = 4096;

std::mutex pools_mutex;
std::map<uint64_t, std::weak_ptr<BlockPool>> pools;  // by the account's nonce

// A block may be larger than what goes into it by a quarter.
uint64_t largest_for(uint64_t bytes) { return std::max(bytes + bytes / 4, bytes + (uint64_t{256} << 10)); }

template <typename Map>
void erase_one(Map& map, uint64_t key, SharedBlock* block) {
  const auto [begin, end] = map.equal_range(key);
  for (auto it = begin; it != end; ++it) {
    if (it->second != block) continue;
    map.erase(it);
    return;
  }
}

}  // namespace

uint64_t Account::used() const {
  uint64_t total = 0;
  for (const Row& row : rows) {
    if (row.holder.load(std::memory_order_relaxed) == 0) break;
    total += row.bytes.load(std::memory_order_relaxed);
  }
  return total;
}

void Account::forget_dead() {
  for (Row& row : rows) {
    const uint64_t holder = row.holder.load();
    if (holder == 0) break;
    if (row.bytes.load() > 0 && os::proven_dead(holder)) row.bytes.store(0);
  }
}

std::shared_ptr<BlockPool> BlockPool::join(const RegionAddress& address) {
  const std::lock_guard lock(pools_mutex);
  std::erase_if(pools, [](const auto& entry) { return entry.second.expired(); });
  if (auto pool = pools[address.nonce].lock()) {
    const std::lock_guard own(pool->mutex_);
    pool->joined_++;
    return pool;
  }
  if (address.bytes < sizeof(Account)) throw Error("SINKFLEX_BAD_ARGUMENT", "the account is too small");
  std::shared_ptr<BlockPool> pool(new BlockPool(SharedRegion::open(address, os::Mapping::Mode::kShared)));
  pool->joined_ = 1;
  pools[address.nonce] = pool;
  return pool;
}

BlockPool::BlockPool(std::shared_ptr<SharedRegion> account) : account_(std::move(account)) {
  const os::Identity self = os::own_identity();
  for (int pass = 0; pass < 2 && row_ == nullptr; pass++) {
    for (auto& row : this->account().rows) {
      uint64_t holder = row.holder.load();
      // In the second pass rows of the dead, whose bytes are not counted any more.
      const bool mine = holder == self || ((holder == 0 || (pass == 1 && os::proven_dead(holder))) &&
                                           row.holder.compare_exchange_strong(holder, self));
      if (!mine) continue;
      if (holder != self) row.bytes.store(0);
      row_ = &row;
      break;
    }
  }
  if (row_ == nullptr)
    throw Error("SINKFLEX_OBJECT_STORE_FULL", "more processes share objects than the account has rows");
}

BlockPool::~BlockPool() {
  for (auto& [block, entry] : blocks_) row_->bytes.fetch_sub(block->capacity());
  // The row stays with this process: pools of one account come and go with its threads.
}

void BlockPool::count(int64_t bytes) {
  used_ += static_cast<uint64_t>(bytes);
  row_->bytes.fetch_add(static_cast<uint64_t>(bytes));
}

void BlockPool::set_state(Entry& entry, State state) {
  SharedBlock* block = entry.block.get();
  const uint64_t capacity = block->capacity();
  if (entry.state == State::kFree) {
    erase_one(idle_, capacity, block);
    free_bytes_ -= capacity;
  } else if (entry.state == State::kWaiting) {
    erase_one(waiting_, capacity, block);
    waiting_bytes_ -= capacity;
  }
  entry.state = state;
  entry.since = Clock::now();
  if (state == State::kFree) {
    idle_.emplace(capacity, block);
    free_bytes_ += capacity;
  } else if (state == State::kWaiting) {
    waiting_.emplace(capacity, block);
    waiting_bytes_ += capacity;
  }
}

void BlockPool::destroy(SharedBlock* block) {
  const auto it = blocks_.find(block);
  set_state(it->second, State::kHeld);
  count(-static_cast<int64_t>(block->capacity()));
  blocks_.erase(it);
}

void BlockPool::destroy_free(uint64_t wanted) {
  uint64_t freed = 0;
  while (freed < wanted && !idle_.empty()) {
    SharedBlock* largest = idle_.rbegin()->second;
    freed += largest->capacity();
    destroy(largest);
  }
}

SharedBlock* BlockPool::find(uint64_t bytes) {
  const uint64_t largest = largest_for(bytes);
  const auto free = idle_.lower_bound(bytes);
  if (free != idle_.end() && free->first <= largest) return free->second;
  int looked = 0;
  for (auto it = waiting_.lower_bound(bytes); it != waiting_.end() && it->first <= largest && looked < kLookAt;
       ++it, looked++) {
    if (it->second->idle()) return it->second;
  }
  return nullptr;
}

std::shared_ptr<BlockPool::Lease> BlockPool::take(uint64_t bytes, uint64_t reserve) {
  const std::lock_guard lock(mutex_);
  SharedBlock* block = find(bytes);
  if (block == nullptr) {
    const uint64_t capacity = (bytes + kPage - 1) / kPage * kPage;
    const uint64_t limit = account().limit.load();
    const uint64_t most = limit > reserve ? limit - reserve : 0;
    const auto over = [&]() -> uint64_t {
      if (reserve == kNoLimit) return 0;
      const uint64_t wanted = account().used() + capacity;
      return wanted > most ? wanted - most : 0;
    };
    if (over() > 0) {
      for (auto it = waiting_.begin(); it != waiting_.end();) {
        SharedBlock* waiting = (it++)->second;
        if (waiting->idle()) set_state(blocks_.at(waiting), State::kFree);
      }
      destroy_free(over());
    }
    if (over() > 0) account().forget_dead();
    if (over() > 0) {
      throw Error("SINKFLEX_OBJECT_STORE_FULL", std::to_string(bytes) + " bytes do not fit into the object store: " +
                                                    std::to_string(account().used()) + " of " + std::to_string(limit) +
                                                    " bytes are in use");
    }
    std::unique_ptr<SharedBlock> made = SharedBlock::create(capacity);
    block = made.get();
    count(static_cast<int64_t>(capacity));
    blocks_[block].block = std::move(made);
  }
  Entry& entry = blocks_.at(block);
  set_state(entry, State::kHeld);
  entry.lost = {};
  block->begin(bytes);
  return std::make_shared<Lease>(shared_from_this(), block);
}

void BlockPool::give(SharedBlock* block) {
  const std::lock_guard lock(mutex_);
  Entry& entry = blocks_.at(block);
  block->end();
  const uint64_t most_free = account().limit.load() / 4;
  if (joined_ > 0 && !block->idle())
    set_state(entry, State::kWaiting);
  else if (joined_ > 0 && free_bytes_ + block->capacity() <= most_free && !block->worn())
    set_state(entry, State::kFree);
  else
    destroy(block);
}

void BlockPool::channel_gone(uint64_t channel) {
  const std::lock_guard lock(mutex_);
  for (auto& [block, entry] : blocks_) {
    if (entry.state != State::kFree && entry.lost == Clock::time_point{} && block->in_flight() > 0 &&
        block->sent_on(channel))
      entry.lost = Clock::now();
  }
}

void BlockPool::trim() {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  std::vector<SharedBlock*> ended;
  for (auto& [block, entry] : blocks_) {
    if (entry.state == State::kFree && now - entry.since > kFreeFor) ended.push_back(block);
    if (entry.state != State::kWaiting) continue;
    if (now - entry.since > kDeadAfter) block->forget_dead();
    if (block->idle())
      set_state(entry, State::kFree);
    else if (entry.lost != Clock::time_point{} && now - entry.lost > kLostAfter)
      ended.push_back(block);
  }
  for (SharedBlock* block : ended) destroy(block);
  if (account().used() > account().limit.load() / 2) account().forget_dead();
}

void BlockPool::leave() {
  const std::lock_guard lock(mutex_);
  joined_--;
  std::vector<SharedBlock*> ended;
  for (auto& [block, entry] : blocks_) {
    if (entry.state == State::kFree || (joined_ == 0 && entry.state == State::kWaiting)) ended.push_back(block);
  }
  for (SharedBlock* block : ended) destroy(block);
}

BlockPool::Stats BlockPool::stats() {
  const std::lock_guard lock(mutex_);
  return {account().limit.load(),
          account().used(),
          used_,
          free_bytes_,
          waiting_bytes_,
          used_ - free_bytes_ - waiting_bytes_,
          blocks_.size()};
}

}  // namespace sinkflex
