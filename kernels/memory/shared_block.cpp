#include "shared_block.h"

#include <unistd.h>

#include <algorithm>
#include <new>
#include <utility>

#include "../error.h"
#include "../os/failure.h"
#include "../os/process.h"

namespace sinkflex {
namespace {

// Linux allows a process 65,530 mappings by default; each view takes two. Beyond this many views they are copies.
constexpr uint32_t kMostMapped = 20000;
std::atomic<uint32_t> mapped{0};

void read_all(int fd, uint64_t offset, uint8_t* to, uint64_t bytes) {
  while (bytes > 0) {
    const ssize_t got = pread(fd, to, std::min<uint64_t>(bytes, uint64_t{1} << 30), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) throw os::failure("read of shared memory");
    to += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<uint64_t>(got);
  }
}

}  // namespace

// --- readers

std::shared_ptr<MappedBlock> MappedBlock::open(const BlockAddress& address, Pin pin) {
  RegionAddress region = address.region;
  region.bytes += kBlockHeaderBytes;
  os::Descriptor descriptor;
  try {
    descriptor = open_region(region);
  } catch (const Error& error) {
    if (pin == Pin::kClaim && error.code == "SINKFLEX_MEMORY_GONE") return nullptr;
    throw;
  }
  std::shared_ptr<MappedBlock> block(new MappedBlock());
  block->header_ = os::Mapping(descriptor.get(), 0, kBlockHeaderBytes, os::Mapping::Mode::kShared);
  if (!block->pin(address, pin)) {
    block->header_ = os::Mapping();
    return nullptr;
  }
  block->bytes_ = address.region.bytes;
  // From here on the destructor gives the pin back.
  if (mapped.fetch_add(1) < kMostMapped) {
    block->content_ =
        os::Mapping(descriptor.get(), kBlockHeaderBytes, address.region.bytes, os::Mapping::Mode::kPrivate);
    return block;
  }
  block->copy_.reset(new uint8_t[address.region.bytes]);
  read_all(descriptor.get(), kBlockHeaderBytes, block->copy_.get(), address.region.bytes);
  block->unpin();
  return block;
}

bool MappedBlock::pin(const BlockAddress& address, Pin how) {
  const os::Identity self = os::own_identity();
  for (uint32_t i = 0; i < kBlockRows && row_ < 0; i++) {
    auto& holder = header().rows[i].holder;
    uint64_t seen = holder.load();
    if (seen == 0 && holder.compare_exchange_strong(seen, self)) seen = self;
    if (seen == self) row_ = static_cast<int32_t>(i);
  }
  if (how == Pin::kAdopt) {
    if (row_ < 0) return true;
    header().rows[row_].pins.fetch_add(1);
    header().in_flight.fetch_sub(1);
    return true;
  }
  if (row_ < 0) return false;
  header().rows[row_].pins.fetch_add(1);
  if (header().generation.load() == address.generation) return true;
  header().rows[row_].pins.fetch_sub(1);
  return false;
}

void MappedBlock::unpin() {
  if (header_.data() == nullptr) return;
  content_ = os::Mapping();
  if (row_ >= 0)
    header().rows[row_].pins.fetch_sub(1);
  else
    header().in_flight.fetch_sub(1);
  header_ = os::Mapping();
}

MappedBlock::~MappedBlock() {
  if (bytes_ > 0) mapped.fetch_sub(1);
  unpin();
}

// --- owner

std::unique_ptr<SharedBlock> SharedBlock::create(uint64_t capacity) {
  std::unique_ptr<SharedBlock> block(new SharedBlock());
  const uint64_t bytes = capacity + kBlockHeaderBytes;
  const uint64_t nonce = new_nonce();
  block->descriptor_ = os::create_shared(region_name(nonce), bytes);
  block->region_ = {os::identity_pid(os::own_identity()), os::own_start_time(), block->descriptor_.get(), nonce, 0};
  block->capacity_ = capacity;
  os::allocate_shared(block->descriptor_.get(), bytes);
  block->header_ = os::Mapping(block->descriptor_.get(), 0, kBlockHeaderBytes, os::Mapping::Mode::kShared);
  block->content_ = os::Mapping(block->descriptor_.get(), kBlockHeaderBytes, capacity, os::Mapping::Mode::kShared);
  block->content_.populate();
  return block;
}

BlockAddress SharedBlock::address() const {
  BlockAddress address{region_, header().generation.load()};
  address.region.bytes = bytes_;
  return address;
}

void SharedBlock::begin(uint64_t bytes) {
  bytes_ = bytes;
  channels_.clear();
}

void SharedBlock::end() {
  header().generation.fetch_add(1);
  if (sealed_) content_ = os::Mapping(descriptor_.get(), kBlockHeaderBytes, capacity_, os::Mapping::Mode::kShared);
  sealed_ = false;
}

void SharedBlock::seal() {
  if (sealed_) return;
  content_.make_private(descriptor_.get(), kBlockHeaderBytes);
  sealed_ = true;
}

void SharedBlock::sent(uint64_t channel) {
  header().in_flight.fetch_add(1);
  if (!sent_on(channel)) channels_.push_back(channel);
}

bool SharedBlock::sent_on(uint64_t channel) const {
  return std::find(channels_.begin(), channels_.end(), channel) != channels_.end();
}

uint32_t SharedBlock::pins() const {
  uint32_t pins = 0;
  for (const auto& row : header().rows) {
    if (row.holder.load() == 0) break;
    pins += row.pins.load();
  }
  return pins;
}

std::vector<int32_t> SharedBlock::holders() const {
  std::vector<int32_t> pids;
  for (const auto& row : header().rows) {
    const uint64_t holder = row.holder.load();
    if (holder == 0) break;
    if (row.pins.load() > 0) pids.push_back(os::identity_pid(holder));
  }
  return pids;
}

void SharedBlock::forget_dead() {
  for (auto& row : header().rows) {
    const uint64_t holder = row.holder.load();
    if (holder == 0) break;
    if (row.pins.load() > 0 && os::proven_dead(holder)) row.pins.store(0);
  }
}

}  // namespace sinkflex
