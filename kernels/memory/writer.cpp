// The writer lock, choosing a slot that nobody can see, publishing, and recovering from a writer that died.
#include <algorithm>
#include <cstdio>
#include <utility>

#include "../error.h"
#include "../os/futex.h"
#include "segment_state.h"

namespace sinkflex {

using Clock = std::chrono::steady_clock;

bool VersionedSegment::State::slot_pinned(uint32_t index) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  bool pinned = false;
  for (uint32_t i = 0; i < control().readers; i++) {
    ReaderRow& row = control().rows()[i];
    const uint64_t word = row.pinned.load(std::memory_order_seq_cst);
    if (word == kNoVersion || unpack(word).slot != index) continue;
    const os::Identity owner = row.owner.load(std::memory_order_acquire);
    // owner 0: its Reader is between the last two stores of its end, or this word is already old.
    const bool dead = owner != 0 && os::proven_dead(owner) && clear_dead_row(row, owner);
    if (!dead) pinned = true;
  }
  return pinned;
}

void VersionedSegment::State::recover_slots() {
  const auto version = control().version();
  for (uint32_t i = 0; i < control().max_slots; i++) {
    const uint32_t state = version && version->slot == i ? kCurrent : kFree;
    control().slots[i].state.store(state, std::memory_order_relaxed);
  }
}

bool VersionedSegment::State::take_lock(os::Identity* holder) {
  const os::Identity self = os::own_identity();
  *holder = 0;
  if (!control().writer.compare_exchange_strong(*holder, self, std::memory_order_acq_rel)) {
    if (!os::proven_dead(*holder)) return false;
    sinkflex_stretch();
    os::Identity dead = *holder;
    if (!control().writer.compare_exchange_strong(dead, self, std::memory_order_acq_rel)) return false;
  }
  recover_slots();
  return true;
}

void VersionedSegment::State::return_lock() {
  control().writer.store(0, std::memory_order_seq_cst);
  control().wake_writer();
}

int32_t VersionedSegment::State::take_slot() {
  const auto current = control().version();
  const uint32_t count = control().slot_count.load(std::memory_order_acquire);
  int32_t chosen = -1;
  for (uint32_t i = 0; i < count && chosen < 0; i++) {
    if (current && current->slot == i) continue;
    if (!slot_pinned(i)) chosen = static_cast<int32_t>(i);
  }
  if (chosen < 0 && count < control().max_slots) {
    os::allocate_shared(slot_fds[count].get(), control().slot_bytes);
    control().slot_count.store(count + 1, std::memory_order_release);
    chosen = static_cast<int32_t>(count);
  }
  sinkflex_stretch();
  if (chosen >= 0) control().slots[chosen].state.store(kWriting, std::memory_order_relaxed);
  return chosen;
}

std::string VersionedSegment::State::describe_pins() const {
  std::string text;
  for (uint32_t i = 0; i < control().readers; i++) {
    const ReaderRow& row = control().rows()[i];
    const os::Identity owner = row.owner.load(std::memory_order_acquire);
    const uint64_t word = row.pinned.load(std::memory_order_acquire);
    if (owner == 0 || word == kNoVersion) continue;
    const Version v = unpack(word);
    text += (text.empty() ? "pid " : ", pid ") + std::to_string(os::identity_pid(owner)) + " holds version " +
            std::to_string(v.lineage) + "." + std::to_string(v.version);
    if (text.size() > 400) return text + ", ...";
  }
  return text.empty() ? "no pin is held" : text;
}

VersionedSegment::Writing VersionedSegment::begin_write(const WaitOptions& options) {
  State& state = *state_;
  ControlBlock& control = state.control();
  const auto started = Clock::now();
  const auto deadline = started + options.timeout;
  bool locked = false;
  bool warned = false;
  os::Identity holder = 0;
  std::optional<Error> no_memory;  // why no slot could be added
  const auto give_up = [&](const std::string& code, const std::string& message) {
    if (locked) state.return_lock();
    throw Error(code, message);
  };
  while (true) {
    // The flag goes up before the look: whoever gives back later sees it (wake_writer).
    const uint32_t returned = control.returned.load(std::memory_order_acquire);
    control.writer_waits.store(1, std::memory_order_seq_cst);
    if (!locked) locked = state.take_lock(&holder);
    if (locked) {
      int32_t slot = -1;
      try {
        slot = state.take_slot();
      } catch (const Error& error) {
        if (error.code != "SINKFLEX_MEMORY_SHORT") give_up(error.code, error.what());
        no_memory = error;
      }
      if (slot >= 0) {
        try {
          return Writing(shared_from_this(), static_cast<uint32_t>(slot), state.slot(static_cast<uint32_t>(slot)));
        } catch (const Error& error) {
          give_up(error.code, error.what());
        }
      }
    }
    if (options.stop != nullptr && options.stop->load(std::memory_order_acquire)) {
      give_up("SINKFLEX_STORE_STOPPED", "waiting for a slot of the store was stopped");
    }
    const auto now = Clock::now();
    const std::string waited =
        std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(now - started).count()) + " ms";
    if (now >= deadline) {
      if (!locked) {
        give_up("SINKFLEX_STORE_BUSY", "process " + std::to_string(os::identity_pid(holder)) +
                                           " has been writing to the store for over " + waited +
                                           "; one writer at a time: publish or abort there");
      }
      if (no_memory)
        give_up(no_memory->code,
                std::string(no_memory->what()) + " (all present slots stayed pinned for " + waited + ")");
      give_up("SINKFLEX_STORE_FULL", "all " + std::to_string(control.max_slots) +
                                         " slots of the store stayed pinned for " + waited + " (" +
                                         state.describe_pins() + "); release pins, or raise maxSlots when creating it");
    }
    if (!warned && now - started >= std::chrono::seconds(1)) {
      warned = true;
      const std::string text =
          locked ? "publishing waits: every slot of the weight store is pinned (" + state.describe_pins() + ")"
                 : "publishing waits: process " + std::to_string(os::identity_pid(holder)) + " is writing";
      if (options.on_slow) {
        options.on_slow(text);
      } else {
        std::fprintf(stderr, "sinkflex: %s\n", text.c_str());
      }
    }
    // In slices: the stop flag, and holders that die without giving anything back.
    const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline - now);
    os::futex_wait(&control.returned, returned,
                   std::min<std::chrono::nanoseconds>(left, std::chrono::milliseconds(50)));
  }
}

VersionedSegment::Writing::Writing(std::shared_ptr<VersionedSegment> segment, uint32_t slot, uint8_t* data)
    : segment_(std::move(segment)), slot_(slot), data_(data) {}

VersionedSegment::Writing::~Writing() { abort(); }

VersionedSegment::Writing::Writing(Writing&& other) noexcept
    : segment_(std::move(other.segment_)), slot_(other.slot_), data_(std::exchange(other.data_, nullptr)) {}

VersionedSegment::Writing& VersionedSegment::Writing::operator=(Writing&& other) noexcept {
  std::swap(segment_, other.segment_);
  std::swap(slot_, other.slot_);
  std::swap(data_, other.data_);
  return *this;
}

void VersionedSegment::Writing::publish(uint32_t lineage, uint32_t version) {
  if (segment_ == nullptr) throw Error("SINKFLEX_STORE_CLOSED", "this writing is over: it was published or aborted");
  State& state = *segment_->state_;
  ControlBlock& control = state.control();
  if (lineage >= kLineageLimit)
    throw Error("SINKFLEX_BAD_ARGUMENT", "lineage must be below " + std::to_string(kLineageLimit));
  const uint64_t word = pack({lineage, version, slot_});
  const auto old = control.version();
  if (old && (word >> 8) <= (pack(*old) >> 8)) {
    throw Error("SINKFLEX_STORE_ORDER", "version " + std::to_string(lineage) + "." + std::to_string(version) +
                                            " does not follow the published " + std::to_string(old->lineage) + "." +
                                            std::to_string(old->version) +
                                            "; versions grow within a lineage, and a restore takes the next lineage");
  }
  const auto now = Clock::now().time_since_epoch();
  control.slots[slot_].published.store(
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count()),
      std::memory_order_relaxed);
  control.slots[slot_].state.store(kReady, std::memory_order_relaxed);
  sinkflex_stretch();
  control.current.store(word, std::memory_order_seq_cst);  // the flip
  sinkflex_stretch();
  control.flips.fetch_add(1, std::memory_order_release);
  os::futex_wake_all(&control.flips);
  control.slots[slot_].state.store(kCurrent, std::memory_order_relaxed);
  if (old) control.slots[old->slot].state.store(kFree, std::memory_order_relaxed);
  state.return_lock();
  segment_.reset();
  data_ = nullptr;
}

void VersionedSegment::Writing::abort() noexcept {
  if (segment_ == nullptr) return;
  State& state = *segment_->state_;
  state.control().slots[slot_].state.store(kFree, std::memory_order_relaxed);
  state.return_lock();
  segment_.reset();
  data_ = nullptr;
}

}  // namespace sinkflex
