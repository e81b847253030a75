// Shared memory objects: on Linux sealed memfds, which vanish with the last process that holds them and are reached by
// others as /proc/<pid>/fd/<fd>; elsewhere shm_open names that their creator unlinks.
#ifndef SINKFLEX_OS_SHARED_MEMORY_H
#define SINKFLEX_OS_SHARED_MEMORY_H

#include <cstddef>
#include <cstdint>
#include <string>

namespace sinkflex::os {

// An owned descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Descriptor& operator=(Descriptor&& other) noexcept;
  int get() const noexcept { return fd_; }

 private:
  int fd_ = -1;
};

// An owned mapping, readable and writable.
class Mapping {
 public:
  // What is written is seen by all; or stays in this mapping, page by page (copy on write).
  enum class Mode { kShared, kPrivate };

  Mapping() = default;
  Mapping(int fd, size_t size);  // shared; faults every page in: no page fault, hence no SIGBUS, later
  // [offset, offset + size); offset is a multiple of the page size. Pages come with the first access: the object's
  // memory must be allocated.
  Mapping(int fd, uint64_t offset, size_t size, Mode mode);
  ~Mapping();
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  uint8_t* data() const noexcept { return data_; }
  size_t size() const noexcept { return size_; }
  // Enters all pages at once (their memory must be allocated): cheaper than a fault for each. A hint.
  void populate() const noexcept;
  // From now on as a fresh kPrivate mapping of the same bytes, at the same address.
  void make_private(int fd, uint64_t offset);

 private:
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

// `name` is what /proc/<pid>/maps shows (Linux) or the shm name (elsewhere; at most 30 characters). The size is fixed
// for good; no memory is taken yet.
Descriptor create_shared(const std::string& name, uint64_t size);
// An object of a living process. Throws SINKFLEX_OS_FAILED when there is none, or it is no object of at least `size`
// bytes.
Descriptor open_shared(int32_t pid, int fd, const std::string& name, uint64_t size);
// Whether the object behind the descriptor was made with that name (elsewhere than on Linux opening by name proves it).
bool has_name(int fd, const std::string& name);
void unlink_shared(const std::string& name) noexcept;

// Takes the memory of [0, size) now. SINKFLEX_MEMORY_SHORT when the machine or the control group has less than that to
// give.
void allocate_shared(int fd, uint64_t size);

// What can be taken without swapping or being killed: the machine's MemAvailable, or what the memory control groups
// above this process leave, whichever is less.
uint64_t available_memory();

}  // namespace sinkflex::os

#endif
