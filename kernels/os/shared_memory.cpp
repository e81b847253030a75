#include "shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <string_view>
#include <utility>

#include "failure.h"

namespace sinkflex::os {
namespace {

// A page of this size needs one entry of the page table and of its caches instead of 512.
constexpr uint64_t kHugePage = uint64_t{2} << 20;
// Objects from this size on are made of them.
constexpr uint64_t kHugeFrom = 2 * kHugePage;

// mmap at an address that agrees with the offset modulo a huge page, without which none can be entered as a whole.
void* map_shared(size_t size, int flags, int fd, uint64_t offset) {
  constexpr int kAccess = PROT_READ | PROT_WRITE;
  const auto at = static_cast<off_t>(offset);
  if (size < kHugeFrom) return mmap(nullptr, size, kAccess, flags, fd, at);
  void* room = mmap(nullptr, size + kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return room;
  auto* const begin = static_cast<uint8_t*>(room);
  const uint64_t before = (offset - reinterpret_cast<uintptr_t>(begin)) % kHugePage;
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t taken = before + (size + page - 1) / page * page;
  void* data = mmap(begin + before, size, kAccess, flags | MAP_FIXED, fd, at);
  if (data == MAP_FAILED) {
    munmap(room, size + kHugePage);
    return data;
  }
  if (before > 0) munmap(begin, before);
  if (taken < size + kHugePage) munmap(begin + taken, size + kHugePage - taken);
  return data;
}

#ifdef __linux__
// Makes the object of huge pages, which are cheaper to take, to enter and to walk. A hint: where the kernel has none to
// give, the rest is left to be taken page by page.
void take_huge_pages(int fd, uint64_t size) {
#ifdef MADV_COLLAPSE
  constexpr int kCollapse = MADV_COLLAPSE;
#else
  constexpr int kCollapse = 25;  // the same, in headers older than the kernel
#endif
  const uint64_t whole = size / kHugePage * kHugePage;
  if (whole < kHugeFrom) return;
  // What is collapsed is at least one page, the rest of which is filled with zeros.
  for (uint64_t at = 0; at < whole; at += kHugePage) {
    if (fallocate(fd, 0, static_cast<off_t>(at), 1) != 0) return;
  }
  void* data = map_shared(whole, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return;
  madvise(data, whole, kCollapse);
  munmap(data, whole);
}
#endif

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Mapping::Mapping(int fd, size_t size) : size_(size) {
#ifdef __linux__
  const int populate = MAP_POPULATE;
#else
  const int populate = 0;
#endif
  void* data = map_shared(size, MAP_SHARED | populate, fd, 0);
  if (data == MAP_FAILED) throw failure("mmap of " + std::to_string(size) + " bytes");
  data_ = static_cast<uint8_t*>(data);
}

Mapping::Mapping(int fd, uint64_t offset, size_t size, Mode mode) : size_(size) {
  // MAP_NORESERVE: a private mapping is copied only where it is written, so it is not charged in advance.
  const int flags = mode == Mode::kShared ? MAP_SHARED : MAP_PRIVATE | MAP_NORESERVE;
  void* data = map_shared(size, flags, fd, offset);
  if (data == MAP_FAILED) throw failure("mmap of " + std::to_string(size) + " bytes");
  data_ = static_cast<uint8_t*>(data);
}

void Mapping::populate() const noexcept {
#ifdef MADV_POPULATE_WRITE
  madvise(data_, size_, MADV_POPULATE_WRITE);
#elif defined(__linux__)
  madvise(data_, size_, 23);  // the same, in headers older than the kernel
#endif
}

void Mapping::make_private(int fd, uint64_t offset) {
  const int flags = MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED;
  if (mmap(data_, size_, PROT_READ | PROT_WRITE, flags, fd, static_cast<off_t>(offset)) == MAP_FAILED)
    throw failure("mmap of " + std::to_string(size_) + " bytes");
}

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, size_);
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Descriptor create_shared(const std::string& name, uint64_t size) {
#ifdef __linux__
  Descriptor descriptor(memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (descriptor.get() < 0) throw failure("memfd_create");
#else
  Descriptor descriptor(shm_open(("/" + name).c_str(), O_RDWR | O_CREAT | O_EXCL, 0600));
  if (descriptor.get() < 0) throw failure("shm_open /" + name);
#endif
  if (ftruncate(descriptor.get(), static_cast<off_t>(size)) != 0) {
    throw failure("ftruncate of shared memory to " + std::to_string(size) + " bytes");
  }
#ifdef __linux__
  // Nobody can shrink it under a reader's mapping (SIGBUS).
  if (fcntl(descriptor.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    throw failure("fcntl F_ADD_SEALS");
#endif
  return descriptor;
}

Descriptor open_shared([[maybe_unused]] int32_t pid, [[maybe_unused]] int fd, [[maybe_unused]] const std::string& name,
                       uint64_t size) {
#ifdef __linux__
  const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd);
  // O_NONBLOCK: if the number means a pipe by now, open must not wait for its other end.
  Descriptor descriptor(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
#else
  const std::string path = "/" + name;
  Descriptor descriptor(shm_open(path.c_str(), O_RDWR));
#endif
  if (descriptor.get() < 0) throw failure("open " + path);
  struct stat info{};
  if (fstat(descriptor.get(), &info) != 0) throw failure("fstat " + path);
  if (!S_ISREG(info.st_mode) || static_cast<uint64_t>(info.st_size) < size) {
    throw Error("SINKFLEX_OS_FAILED", path + " is not a shared memory object of " + std::to_string(size) + " bytes");
  }
  return descriptor;
}

bool has_name([[maybe_unused]] int fd, [[maybe_unused]] const std::string& name) {
#ifdef __linux__
  char link[32];
  char target[256];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t size = readlink(link, target, sizeof target);
  if (size < 0) return false;
  const std::string expected = "/memfd:" + name + " ";  // " (deleted)" follows
  return std::string_view(target, static_cast<size_t>(size)).starts_with(expected);
#else
  return true;
#endif
}

void unlink_shared([[maybe_unused]] const std::string& name) noexcept {
#ifndef __linux__
  shm_unlink(("/" + name).c_str());
#endif
}

void allocate_shared([[maybe_unused]] int fd, uint64_t size) {
  // Checked first: past the limit of a control group the kernel kills instead of failing the call.
  const uint64_t available = available_memory();
  if (available < size) {
    throw Error("SINKFLEX_MEMORY_SHORT",
                std::to_string(size) + " bytes of shared memory do not fit: " + std::to_string(available) +
                    " bytes are available; ask for less (fewer slots, a smaller model), or free memory");
  }
#ifdef __linux__
  take_huge_pages(fd, size);
  int result;
  do {
    result = fallocate(fd, 0, 0, static_cast<off_t>(size));
  } while (result != 0 && errno == EINTR);
  if (result == 0) return;
  if (errno == ENOMEM || errno == ENOSPC) {
    throw Error("SINKFLEX_MEMORY_SHORT", "the kernel has no memory for " + std::to_string(size) + " bytes (" +
                                             std::strerror(errno) + "); ask for less (fewer slots), or free memory");
  }
  throw failure("fallocate of " + std::to_string(size) + " bytes");
#endif
}

}  // namespace sinkflex::os
