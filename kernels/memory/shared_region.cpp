#include "shared_region.h"

#include <cstdio>
#include <random>

#include "../error.h"
#include "../os/process.h"

namespace sinkflex {

uint64_t new_nonce() {
  std::random_device entropy;
  uint64_t nonce = 0;
  while (nonce == 0) nonce = (uint64_t{entropy()} << 32) | entropy();
  return nonce;
}

std::string region_name(uint64_t nonce) {
  char text[28];  // shm names of other systems hold 30 characters
  std::snprintf(text, sizeof text, "sinkflex-%016llx", static_cast<unsigned long long>(nonce));
  return text;
}

os::Descriptor open_region(const RegionAddress& address) {
  const auto gone = [&](const std::string& why) {
    return Error("SINKFLEX_MEMORY_GONE",
                 "the shared memory of process " + std::to_string(address.pid) + " cannot be opened: " + why);
  };
  try {
    os::Descriptor descriptor = os::open_shared(address.pid, address.fd, region_name(address.nonce), address.bytes);
    // The name proves that it is the object itself, whoever has the pid and the descriptor by now.
    if (os::has_name(descriptor.get(), region_name(address.nonce))) return descriptor;
  } catch (const Error& error) {
    throw gone(error.what());
  }
  throw gone("its descriptor " + std::to_string(address.fd) + " is something else now (the memory was released)");
}

std::shared_ptr<SharedRegion> SharedRegion::create(uint64_t bytes) {
  std::shared_ptr<SharedRegion> region(new SharedRegion());
  const uint64_t nonce = new_nonce();
  region->descriptor_ = os::create_shared(region_name(nonce), bytes);
  region->creator_ = true;
  region->address_ = {os::identity_pid(os::own_identity()), os::own_start_time(), region->descriptor_.get(), nonce,
                      bytes};
  os::allocate_shared(region->descriptor_.get(), bytes);
  region->mapping_ = os::Mapping(region->descriptor_.get(), bytes);
  return region;
}

std::shared_ptr<SharedRegion> SharedRegion::open(const RegionAddress& address, os::Mapping::Mode mode) {
  std::shared_ptr<SharedRegion> region(new SharedRegion());
  region->address_ = address;
  region->mapping_ = os::Mapping(open_region(address).get(), 0, address.bytes, mode);
  return region;
}

SharedRegion::~SharedRegion() {
  if (creator_) os::unlink_shared(region_name(address_.nonce));
}

}  // namespace sinkflex
