// A piece of memory that processes share, named by a plain address: whoever has the address maps it, to write in it for
// all or to have it as it is (copy on write).
#ifndef SINKFLEX_MEMORY_SHARED_REGION_H
#define SINKFLEX_MEMORY_SHARED_REGION_H

#include <cstdint>
#include <memory>
#include <string>

#include "../os/shared_memory.h"

namespace sinkflex {

struct RegionAddress {
  int32_t pid;          // of the process that made it
  uint64_t start_time;  // of that process, against a reused pid
  int32_t fd;           // there
  uint64_t nonce;       // part of the object's name, against a reused descriptor
  uint64_t bytes;
};

// Never 0.
uint64_t new_nonce();
std::string region_name(uint64_t nonce);
// A descriptor of that very object. SINKFLEX_MEMORY_GONE when its maker is dead or has let go of it.
os::Descriptor open_region(const RegionAddress& address);

class SharedRegion {
 public:
  // Zeros, every page allocated. SINKFLEX_MEMORY_SHORT when there is no room.
  static std::shared_ptr<SharedRegion> create(uint64_t bytes);
  static std::shared_ptr<SharedRegion> open(const RegionAddress& address, os::Mapping::Mode mode);
  ~SharedRegion();
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;

  const RegionAddress& address() const noexcept { return address_; }
  uint8_t* data() const noexcept { return mapping_.data(); }
  // What is written from now on is seen by nobody else.
  void make_private() { mapping_.make_private(descriptor_.get(), 0); }

 private:
  SharedRegion() = default;

  RegionAddress address_{};
  bool creator_ = false;
  os::Descriptor descriptor_;  // the creator's: others open it through /proc
  os::Mapping mapping_;
};

}  // namespace sinkflex

#endif
