// Creating, opening and looking at a versioned segment. Pins: reader.cpp; writing and publishing: writer.cpp.
#include "versioned_segment.h"

#include <algorithm>
#include <new>
#include <random>

#include "../error.h"
#include "../os/futex.h"
#include "segment_state.h"

namespace sinkflex {

using Clock = std::chrono::steady_clock;

VersionedSegment::State::~State() {
  if (!creator) return;
  const uint32_t slots = control_map.data() != nullptr ? control().max_slots : 0;
  os::unlink_shared(object_name(-1));
  for (uint32_t i = 0; i < slots; i++) os::unlink_shared(object_name(static_cast<int>(i)));
}

std::string VersionedSegment::State::object_name(int index) const {
  char text[40];
  std::snprintf(text, sizeof text, "sinkflex-%016llx-%d", static_cast<unsigned long long>(address.nonce), index);
  return text;
}

uint8_t* VersionedSegment::State::slot(uint32_t index) {
  uint8_t* data = slot_data[index].load(std::memory_order_acquire);
  if (data != nullptr) return data;
  const std::lock_guard lock(mapping);
  if (slot_data[index].load(std::memory_order_relaxed) == nullptr) {
    slot_maps[index] = os::Mapping(slot_fds[index].get(), control().slot_bytes);
    slot_data[index].store(slot_maps[index].data(), std::memory_order_release);
  }
  return slot_data[index].load(std::memory_order_relaxed);
}

VersionedSegment::VersionedSegment(std::unique_ptr<State> state) : state_(std::move(state)) {}
VersionedSegment::~VersionedSegment() = default;

std::shared_ptr<VersionedSegment> VersionedSegment::create(const SegmentOptions& options) {
  const auto bad = [](const std::string& message) { return Error("SINKFLEX_BAD_ARGUMENT", message); };
  if (options.slot_bytes == 0 || options.slot_bytes > (uint64_t{1} << 46))
    throw bad("slotBytes must be from 1 to 2^46");
  if (options.slots < 1 || options.slots > options.max_slots || options.max_slots > kSlotLimit) {
    throw bad("slots must be at least 1 and at most maxSlots, and maxSlots at most " + std::to_string(kSlotLimit) +
              "; got " + std::to_string(options.slots) + " and " + std::to_string(options.max_slots));
  }
  if (options.readers < 1 || options.readers > kReaderLimit) {
    throw bad("readers must be from 1 to " + std::to_string(kReaderLimit) + "; got " + std::to_string(options.readers));
  }

  auto state = std::make_unique<State>();
  std::random_device entropy;
  do {
    state->address.nonce = (uint64_t{entropy()} << 32) | entropy();
  } while (state->address.nonce == 0);
  state->address.pid = os::identity_pid(os::own_identity());
  state->address.start_time = os::own_start_time();

  const size_t bytes = ControlBlock::bytes(options.readers);
  state->creator = true;
  state->control_fd = os::create_shared(state->object_name(-1), bytes);
  state->address.control_fd = state->control_fd.get();
  os::allocate_shared(state->control_fd.get(), bytes);
  state->control_map = os::Mapping(state->control_fd.get(), bytes);
  auto* control = new (state->control_map.data()) ControlBlock{};
  for (uint32_t i = 0; i < options.readers; i++) new (control->rows() + i) ReaderRow{};
  control->nonce = state->address.nonce;
  control->slot_bytes = options.slot_bytes;
  control->max_slots = options.max_slots;
  control->readers = options.readers;
  // Every object exists from the start, held by the creator, so that any process can add a slot: only its memory comes
  // later.
  for (uint32_t i = 0; i < options.max_slots; i++) {
    state->slot_fds[i] = os::create_shared(state->object_name(static_cast<int>(i)), options.slot_bytes);
    control->slots[i].fd = state->slot_fds[i].get();
  }
  for (uint32_t i = 0; i < options.slots; i++) {
    os::allocate_shared(state->slot_fds[i].get(), options.slot_bytes);
    state->slot(i);
    control->slot_count.store(i + 1, std::memory_order_relaxed);
  }
  control->magic = kSegmentMagic;
  return std::shared_ptr<VersionedSegment>(new VersionedSegment(std::move(state)));
}

std::shared_ptr<VersionedSegment> VersionedSegment::open(const SegmentAddress& address) {
  const auto gone = [&](const std::string& why) {
    return Error("SINKFLEX_STORE_GONE", "the store of process " + std::to_string(address.pid) +
                                            " cannot be opened: " + why + "; open the address of its successor");
  };
  const os::Identity creator = os::make_identity(address.pid, address.start_time);
  auto state = std::make_unique<State>();
  state->address = address;
  if (os::proven_dead(creator)) throw gone("the process is dead");
  try {
    state->control_fd =
        os::open_shared(address.pid, address.control_fd, state->object_name(-1), ControlBlock::bytes(1));
    state->control_map = os::Mapping(state->control_fd.get(), ControlBlock::bytes(1));
    if (state->control().magic != kSegmentMagic || state->control().nonce != address.nonce) {
      throw gone("its descriptor " + std::to_string(address.control_fd) +
                 " is something else now (the store was closed)");
    }
    const uint32_t readers = state->control().readers;
    const uint32_t max_slots = state->control().max_slots;
    state->control_map = os::Mapping(state->control_fd.get(), ControlBlock::bytes(readers));
    for (uint32_t i = 0; i < max_slots; i++) {
      state->slot_fds[i] = os::open_shared(address.pid, state->control().slots[i].fd,
                                           state->object_name(static_cast<int>(i)), state->control().slot_bytes);
    }
  } catch (const Error& error) {
    if (error.code == "SINKFLEX_STORE_GONE") throw;
    throw gone(error.what());
  }
  if (os::proven_dead(creator))
    throw gone("the process died meanwhile");  // else the pid may have been another's all along
  const uint32_t count = state->control().slot_count.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < count; i++) state->slot(i);
  return std::shared_ptr<VersionedSegment>(new VersionedSegment(std::move(state)));
}

const SegmentAddress& VersionedSegment::address() const noexcept { return state_->address; }
uint64_t VersionedSegment::slot_bytes() const noexcept { return state_->control().slot_bytes; }
uint32_t VersionedSegment::slots() const noexcept {
  return state_->control().slot_count.load(std::memory_order_acquire);
}
uint32_t VersionedSegment::max_slots() const noexcept { return state_->control().max_slots; }
std::optional<Version> VersionedSegment::current() const noexcept { return state_->control().version(); }

uint64_t VersionedSegment::published_at() const noexcept {
  const auto version = current();
  return version ? state_->control().slots[version->slot].published.load(std::memory_order_acquire) : 0;
}

std::optional<Version> VersionedSegment::wait_for_version(std::optional<uint32_t> lineage, int64_t after,
                                                          const WaitOptions& options) const {
  ControlBlock& control = state_->control();
  const auto deadline = Clock::now() + options.timeout;
  while (true) {
    const uint32_t flips =
        control.flips.load(std::memory_order_acquire);  // before the look: a later flip ends the sleep
    const auto version = control.version();
    if (version && ((lineage && *lineage != version->lineage) || int64_t{version->version} > after)) return version;
    const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline - Clock::now());
    if (left.count() <= 0 || (options.stop != nullptr && options.stop->load(std::memory_order_acquire)))
      return std::nullopt;
    // In slices: the stop flag, and a writer that died between the flip and the wake.
    os::futex_wait(&control.flips, flips, std::min<std::chrono::nanoseconds>(left, std::chrono::milliseconds(100)));
  }
}

std::vector<HeldPin> VersionedSegment::pins() const {
  ControlBlock& control = state_->control();
  std::vector<HeldPin> held;
  for (uint32_t i = 0; i < control.readers; i++) {
    const ReaderRow& row = control.rows()[i];
    const os::Identity owner = row.owner.load(std::memory_order_acquire);
    const uint64_t pinned = row.pinned.load(std::memory_order_acquire);
    if (owner == 0 || pinned == kNoVersion) continue;
    held.push_back({os::identity_pid(owner), row.incarnation.load(std::memory_order_relaxed), unpack(pinned)});
  }
  return held;
}

}  // namespace sinkflex
