// Shared blocks without Node, under the sanitizers: what a reader has never changes, whatever the owner does with its
// pool meanwhile; readers that come too late get nothing; readers that are killed give their blocks back.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <deque>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>

#include "error.h"
#include "memory/block_pool.h"
#include "memory/bulk_copy.h"
#include "memory/shared_block.h"

using namespace sinkflex;
using Pin = MappedBlock::Pin;

namespace {

int number = 0;
bool all_good = true;

void check(bool good, const std::string& what) {
  if (!good) all_good = false;
  std::printf("%s %d - %s\n", good ? "ok" : "not ok", ++number, what.c_str());
  std::fflush(stdout);
}

std::shared_ptr<SharedRegion> make_account(uint64_t limit) {
  auto region = SharedRegion::create(16384);
  reinterpret_cast<Account*>(region->data())->limit = limit;
  return region;
}

bool all_equal(const MappedBlock& block, uint8_t value) {
  for (uint64_t i = 0; i < block.bytes(); i++)
    if (block.data()[i] != value) return false;
  return true;
}

void life_of_a_block() {
  const auto account = make_account(64 << 20);
  const auto pool = BlockPool::join(account->address());
  const uint64_t bytes = 300'000;
  auto lease = pool->take(bytes, 0);
  std::memset((*lease)->data(), 7, bytes);
  const BlockAddress address = (*lease)->address();
  (*lease)->sent(1);
  auto adopted = MappedBlock::open(address, Pin::kAdopt);
  auto claimed = MappedBlock::open(address, Pin::kClaim);
  check(adopted && claimed && (*lease)->in_flight() == 0 && (*lease)->pins() == 2,
        "a counted reader and one by itself");
  adopted->data()[0] = 9;
  check((*lease)->data()[0] == 7 && claimed->data()[0] == 7, "what a reader writes stays with it");
  (*lease)->seal();
  (*lease)->data()[1] = 9;
  check(claimed->data()[1] == 7, "what the owner writes after sealing stays with it");
  lease.reset();
  check(MappedBlock::open(address, Pin::kClaim) == nullptr, "content that has ended cannot be claimed");
  auto other = pool->take(bytes, 0);
  std::memset((*other)->data(), 8, bytes);
  check(all_equal(*claimed, 7), "a view outlives the content's lease, and its block is not used again");
  adopted.reset();
  claimed.reset();
  auto again = pool->take(bytes, 0);
  check((*again)->address().region.nonce == address.region.nonce, "without views it is");
  again.reset();

  std::string code;
  try {
    (void)pool->take(65 << 20, 0);
  } catch (const Error& error) {
    code = error.code;
  }
  check(code == "SINKFLEX_OBJECT_STORE_FULL", "beyond the limit");
  other.reset();
  pool->leave();
  check(pool->stats().blocks == 0 && pool->stats().used == 0, "nothing is left after the last thread");
}

void killed_reader() {
  const auto account = make_account(64 << 20);
  const auto pool = BlockPool::join(account->address());
  auto lease = pool->take(100'000, 0);
  const BlockAddress address = (*lease)->address();
  int ready[2];
  if (pipe(ready) != 0) return check(false, "pipe");
  const pid_t child = fork();
  if (child == 0) {
    const auto block = MappedBlock::open(address, Pin::kClaim);
    (void)!write(ready[1], block ? "y" : "n", 1);
    for (;;) pause();
  }
  char answer = 0;
  (void)!read(ready[0], &answer, 1);
  check(answer == 'y' && (*lease)->holders() == std::vector<int32_t>{child}, "a reader in another process");
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  check((*lease)->pins() == 1, "its pin is there after its death");
  (*lease)->forget_dead();
  check((*lease)->pins() == 0, "and is taken back");
  close(ready[0]);
  close(ready[1]);
  lease.reset();
  pool->leave();
}

// One thread writes and lets go, others adopt, claim late, keep views and compare.
void hammer() {
  const auto account = make_account(256 << 20);
  const auto pool = BlockPool::join(account->address());
  struct Message {
    BlockAddress address;
    uint8_t value;
  };
  std::mutex mutex;
  std::deque<Message> queue;
  std::atomic<bool> done{false};
  std::atomic<int> torn{0}, read{0};
  const auto reader = [&](unsigned seed) {
    std::mt19937 random(seed);
    std::deque<std::pair<std::shared_ptr<MappedBlock>, uint8_t>> kept;
    for (;;) {
      Message message{};
      {
        const std::lock_guard lock(mutex);
        if (!queue.empty()) {
          message = queue.front();
          queue.pop_front();
        } else if (done)
          break;
      }
      if (message.address.generation == 0 && message.address.region.bytes == 0) {
        std::this_thread::yield();
        continue;
      }
      kept.emplace_back(MappedBlock::open(message.address, Pin::kAdopt), message.value);
      if (auto late = MappedBlock::open(message.address, Pin::kClaim)) kept.emplace_back(late, message.value);
      while (kept.size() > random() % 8) {
        if (!all_equal(*kept.front().first, kept.front().second)) torn++;
        read++;
        kept.pop_front();
      }
    }
    for (auto& [block, value] : kept) {
      if (!all_equal(*block, value)) torn++;
      read++;
    }
  };
  std::vector<std::thread> readers;
  for (unsigned i = 0; i < 3; i++) readers.emplace_back(reader, i + 1);
  std::mt19937 random(11);
  std::set<uint64_t> blocks;
  for (int i = 0; i < 1500; i++) {
    const uint64_t bytes = 65'536 + random() % 4 * 4096;
    const auto value = static_cast<uint8_t>(random());
    const std::vector<uint8_t> source(bytes, value);
    auto lease = pool->take(bytes, 0);
    bulk_copy({{(*lease)->data(), source.data(), bytes}}, 1);
    (*lease)->sent(1);
    const Message message{(*lease)->address(), value};
    blocks.insert(message.address.region.nonce);
    for (;;) {
      const std::lock_guard lock(mutex);
      if (queue.size() >= 64) continue;  // readers fall behind by so much at most
      queue.push_back(message);
      break;
    }
  }
  done = true;
  for (auto& thread : readers) thread.join();
  check(torn == 0 && read >= 1500, "no reader saw a byte change (" + std::to_string(read) + " reads)");
  check(blocks.size() < 1500, "blocks were used again (" + std::to_string(blocks.size()) + " for 1500 messages)");
  pool->trim();
  check(pool->stats().waiting == 0, "all came back");
  pool->leave();
}

// Two callers at a time, each with helpers: all bytes of all pieces, and none beside them.
void copies_by_several() {
  std::atomic<int> wrong{0};
  const auto copier = [&](unsigned seed) {
    std::mt19937 random(seed);
    for (int i = 0; i < 40; i++) {
      const size_t bytes = 1'000'000 + random() % 3'000'000;
      std::vector<uint8_t> source(bytes);
      for (size_t at = 0; at < bytes; at += 97) source[at] = static_cast<uint8_t>(random());
      std::vector<uint8_t> target(bytes + 2, 7);
      std::vector<CopyPiece> pieces;
      for (size_t at = 0; at < bytes;) {
        const size_t piece = std::min<size_t>(1 + random() % 700'000, bytes - at);
        pieces.push_back({target.data() + 1 + at, source.data() + at, piece});
        at += piece;
      }
      bulk_copy(pieces, 2 + random() % 3);
      if (std::memcmp(target.data() + 1, source.data(), bytes) != 0 || target.front() != 7 || target.back() != 7)
        wrong++;
    }
  };
  std::thread other(copier, 1);
  copier(2);
  other.join();
  check(wrong == 0, "copies by several threads are whole");
}

}  // namespace

int main() {
  copies_by_several();
  life_of_a_block();
  killed_reader();
  hammer();
  std::printf("1..%d\n", number);
  return all_good ? 0 : 1;
}
