// The life of a collective group and of its members, and the meeting that all operations are made of.
#include "collective.h"

#include <algorithm>
#include <new>
#include <random>
#include <thread>

#include "../os/futex.h"
#include "../os/shared_memory.h"
#include "collective_block.h"
#include "collective_state.h"

namespace sinkflex {
namespace {

using Clock = std::chrono::steady_clock;

// How soon a member that sleeps looks whether the others live: a bound on noticing a death.
constexpr std::chrono::milliseconds kSlice(10);
// A member that is expected any moment is looked for this long before sleeping; waking up costs about as much.
constexpr std::chrono::microseconds kSpin(30);

std::string describe(Ending reason) {
  switch (reason) {
    case Ending::died:
      return "died";
    case Ending::left:
      return "left";
    case Ending::deadline:
      return "waited until its deadline";
    case Ending::aborted:
      return "was aborted";
  }
  return "ended";
}

std::string message_of(Ending reason, uint32_t rank, int32_t pid, const std::vector<uint32_t>& missing) {
  std::string text = "the collective is broken: member ";
  text += std::to_string(rank);
  if (pid != 0) text.append(" (process ").append(std::to_string(pid)).append(")");
  text.append(" ").append(describe(reason));
  if (reason == Ending::deadline && !missing.empty()) {
    text += "; not there:";
    for (size_t i = 0; i < missing.size() && i < 8; i++) text.append(i ? ", " : " ").append(std::to_string(missing[i]));
    if (missing.size() > 8) text += ", ...";
  }
  return text.append("; make a new group");
}

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

CollectiveBroken::CollectiveBroken(Ending reason_, uint32_t rank_, int32_t pid_, std::vector<uint32_t> missing_)
    : Error("SINKFLEX_COLLECTIVE_BROKEN", message_of(reason_, rank_, pid_, missing_)),
      reason(reason_),
      rank(rank_),
      pid(pid_),
      missing(std::move(missing_)) {}

std::string CollectiveGroup::State::object_name() const {
  char text[40];
  std::snprintf(text, sizeof text, "sinkflex-%016llx-c", static_cast<unsigned long long>(address.nonce));
  return text;
}

CollectiveGroup::State::~State() {
  if (creator) os::unlink_shared(object_name());
}

CollectiveGroup::CollectiveGroup(std::unique_ptr<State> state) : state_(std::move(state)) {}
CollectiveGroup::~CollectiveGroup() = default;

std::shared_ptr<CollectiveGroup> CollectiveGroup::create(uint32_t members, uint64_t chunk_bytes) {
  if (members < 1 || members > kMemberLimit)
    throw Error("SINKFLEX_BAD_ARGUMENT",
                "members must be from 1 to " + std::to_string(kMemberLimit) + "; got " + std::to_string(members));
  if (chunk_bytes < 4096 || chunk_bytes > (uint64_t{1} << 30) || chunk_bytes % 4096 != 0)
    throw Error("SINKFLEX_BAD_ARGUMENT",
                "chunkBytes must be a multiple of 4096 up to 2^30; got " + std::to_string(chunk_bytes));
  auto state = std::make_unique<State>();
  std::random_device entropy;
  do {
    state->address.nonce = (uint64_t{entropy()} << 32) | entropy();
  } while (state->address.nonce == 0);
  state->address.pid = os::identity_pid(os::own_identity());
  state->address.start_time = os::own_start_time();
  const size_t bytes = CollectiveBlock::bytes(members, chunk_bytes);
  state->creator = true;
  state->fd = os::create_shared(state->object_name(), bytes);
  state->address.fd = state->fd.get();
  os::allocate_shared(state->fd.get(), bytes);
  state->map = os::Mapping(state->fd.get(), bytes);
  auto* block = new (state->map.data()) CollectiveBlock{};
  for (uint32_t i = 0; i < members; i++) new (block->rows() + i) MemberRow{};
  block->nonce = state->address.nonce;
  block->chunk_bytes = chunk_bytes;
  block->members = members;
  block->magic = kCollectiveMagic;
  return std::shared_ptr<CollectiveGroup>(new CollectiveGroup(std::move(state)));
}

std::shared_ptr<CollectiveGroup> CollectiveGroup::open(const CollectiveAddress& address) {
  const auto gone = [&](const std::string& why) {
    return Error("SINKFLEX_COLLECTIVE_GONE", "the collective that process " + std::to_string(address.pid) +
                                                 " made cannot be joined: " + why + "; make a new group");
  };
  auto state = std::make_unique<State>();
  state->address = address;
  const os::Identity creator = os::make_identity(address.pid, address.start_time);
  if (os::proven_dead(creator)) throw gone("the process is dead");
  try {
    state->fd = os::open_shared(address.pid, address.fd, state->object_name(), sizeof(CollectiveBlock));
    state->map = os::Mapping(state->fd.get(), sizeof(CollectiveBlock));
    const CollectiveBlock& head = state->block();
    if (head.magic != kCollectiveMagic || head.nonce != address.nonce)
      throw gone("its descriptor " + std::to_string(address.fd) + " is something else now");
    const size_t bytes = CollectiveBlock::bytes(head.members, head.chunk_bytes);
    state->fd = os::open_shared(address.pid, address.fd, state->object_name(), bytes);
    state->map = os::Mapping(state->fd.get(), bytes);
  } catch (const Error& error) {
    if (error.code == "SINKFLEX_COLLECTIVE_GONE") throw;
    throw gone(error.what());
  }
  if (state->block().nonce != address.nonce || os::proven_dead(creator)) throw gone("the process died meanwhile");
  return std::shared_ptr<CollectiveGroup>(new CollectiveGroup(std::move(state)));
}

const CollectiveAddress& CollectiveGroup::address() const noexcept { return state_->address; }
uint32_t CollectiveGroup::members() const noexcept { return state_->block().members; }

bool CollectiveGroup::settled() const noexcept {
  CollectiveBlock& block = state_->block();
  if (is_broken(block.state.load(std::memory_order_acquire))) return true;
  for (uint32_t r = 0; r < block.members; r++)
    if (block.rows()[r].owner.load(std::memory_order_acquire) == 0) return false;
  return true;
}

CollectiveMember::CollectiveMember(std::shared_ptr<CollectiveGroup> group, uint32_t rank)
    : group_(std::move(group)),
      rank_(rank),
      members_(group_->members()),
      spins_(members_ <= std::thread::hardware_concurrency()) {
  if (rank >= members_)
    throw Error("SINKFLEX_BAD_ARGUMENT",
                "rank must be below the group's " + std::to_string(members_) + " members; got " + std::to_string(rank));
  CollectiveBlock& block = group_->state_->block();
  os::Identity taken = 0;
  if (!block.rows()[rank].owner.compare_exchange_strong(taken, os::own_identity(), std::memory_order_acq_rel)) {
    throw Error("SINKFLEX_BAD_ARGUMENT", "rank " + std::to_string(rank) + " of the collective was taken by process " +
                                             std::to_string(os::identity_pid(taken)) +
                                             "; a rank is joined once, by one member");
  }
}

CollectiveMember::~CollectiveMember() { breaks(Ending::died, rank_); }

void CollectiveMember::leave() noexcept { breaks(Ending::left, rank_); }

// Ends the group after the meetings that are complete by now; the first end counts.
void CollectiveMember::breaks(Ending reason, uint32_t rank) noexcept {
  std::atomic<uint32_t>& state = group_->state_->block().state;
  uint32_t word = state.load(std::memory_order_acquire);
  while (!is_broken(word)) {
    if (state.compare_exchange_weak(word, broken_word(word, reason, rank), std::memory_order_acq_rel)) {
      os::futex_wake_all(&state);
      return;
    }
  }
}

uint32_t CollectiveMember::next() const noexcept { return (phase_ + 1) & kPhaseMask; }

bool CollectiveMember::all_arrived(uint32_t phase) const noexcept {
  CollectiveBlock& block = group_->state_->block();
  for (uint32_t r = 0; r < members_; r++)
    if (!reached(block.rows()[r].arrived.load(std::memory_order_seq_cst), phase)) return false;
  return true;
}

// A member that died after it came to the meeting has done its part: the next meeting will miss it.
void CollectiveMember::give_up_on_the_dead(uint32_t phase) noexcept {
  CollectiveBlock& block = group_->state_->block();
  for (uint32_t r = 0; r < members_; r++) {
    const os::Identity owner = block.rows()[r].owner.load(std::memory_order_acquire);
    if (owner == 0 || reached(block.rows()[r].arrived.load(std::memory_order_acquire), phase)) continue;
    // It may have come between the two looks; then it lives in the memory only, and the meeting is complete.
    if (os::proven_dead(owner) && !reached(block.rows()[r].arrived.load(std::memory_order_acquire), phase))
      return breaks(Ending::died, r);
  }
}

void CollectiveMember::throw_broken(uint32_t word, uint32_t phase) const {
  CollectiveBlock& block = group_->state_->block();
  std::vector<uint32_t> missing;
  for (uint32_t r = 0; r < members_; r++)
    if (r != rank_ && !reached(block.rows()[r].arrived.load(std::memory_order_acquire), phase)) missing.push_back(r);
  const os::Identity owner = block.rows()[rank_of(word)].owner.load(std::memory_order_acquire);
  throw CollectiveBroken(reason_of(word), rank_of(word), owner == 0 ? 0 : os::identity_pid(owner), std::move(missing));
}

void CollectiveMember::meet(const CollectiveWait& wait) {
  CollectiveBlock& block = group_->state_->block();
  std::atomic<uint32_t>& state = block.state;
  const uint32_t phase = next();
  if (probe) probe();
  uint32_t word = state.load(std::memory_order_acquire);
  if (is_broken(word)) throw_broken(word, phase);
  // Sequentially consistent with the look at the others: of two that come last, at least one sees both.
  block.rows()[rank_].arrived.store(phase, std::memory_order_seq_cst);
  bool looked = false;
  auto spin_until = spins_ ? Clock::now() + kSpin : Clock::time_point::min();
  while (true) {
    word = state.load(std::memory_order_acquire);
    if (reached(word, phase)) break;  // also if it was broken later
    if (is_broken(word)) throw_broken(word, phase);
    if (!looked && all_arrived(phase)) {
      // Everybody before the last one expects exactly this word, so whoever is first decides.
      if (state.compare_exchange_strong(word, phase, std::memory_order_acq_rel)) os::futex_wake_all(&state);
      continue;
    }
    looked = true;
    if (wait.abort != nullptr && wait.abort->load(std::memory_order_acquire)) {
      breaks(Ending::aborted, rank_);
      continue;
    }
    if (wait.stop != nullptr && wait.stop->load(std::memory_order_acquire)) {
      breaks(Ending::died, rank_);
      continue;
    }
    const auto now = Clock::now();
    if (now < spin_until) {
      for (int i = 0; i < 32 && state.load(std::memory_order_relaxed) == word; i++) pause_briefly();
      continue;
    }
    if (now >= wait.deadline) {
      breaks(Ending::deadline, rank_);
      continue;
    }
    const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(wait.deadline - now);
    os::futex_wait(&state, word, std::min<std::chrono::nanoseconds>(left, kSlice));
    if (state.load(std::memory_order_acquire) != word) continue;
    looked = false;  // the last one may have died between coming and telling
    if (!all_arrived(phase)) give_up_on_the_dead(phase);
  }
  phase_ = phase;
  if (probe) probe();
}

void CollectiveMember::declare(uint32_t kind, uint32_t detail, uint64_t size) {
  operation_++;
  group_->state_->block().rows()[rank_].intents[operation_ & 1] = {kind, detail, size};
}

// After the first meeting of an operation. All members compare the same rows, so all come to the same answer.
void CollectiveMember::agree() const {
  CollectiveBlock& block = group_->state_->block();
  const Intent& first = block.rows()[0].intents[operation_ & 1];
  for (uint32_t r = 1; r < members_; r++) {
    const Intent& other = block.rows()[r].intents[operation_ & 1];
    if (other == first) continue;
    const auto text = [](const Intent& intent) {
      static const char* const kinds[] = {"nothing", "barrier", "allReduce", "reduceScatter", "allGather", "broadcast"};
      return std::string(kinds[std::min<uint32_t>(intent.kind, 5)]) + "(size " + std::to_string(intent.size) +
             ", variant " + std::to_string(intent.detail) + ")";
    };
    throw Error("SINKFLEX_COLLECTIVE_MISMATCH", "member 0 called " + text(first) + ", member " + std::to_string(r) +
                                                    " " + text(other) +
                                                    ": all members make the same calls in the same order");
  }
}

}  // namespace sinkflex
