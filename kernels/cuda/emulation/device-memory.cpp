#include "device-memory.h"

#include <sys/mman.h>

#include <map>
#include <mutex>

#include "launch.h"
#include "machine.h"

namespace emulation {

namespace {

constexpr size_t kReserved = (size_t)16 << 30;
constexpr size_t kGap = 256;  // between allocations: nothing is there
enum Known : unsigned char { kFree = 0, kAllocated = 1, kWritten = 2 };

std::mutex allocating;
unsigned char* base;             // [kReserved]
unsigned char* known;            // [kReserved]
std::map<size_t, size_t> taken;  // offset -> bytes
size_t used;
bool host_allowed;

bool reserve() {
  if (base) return true;
#ifdef MAP_NORESERVE
  constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
#else
  constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS;
#endif
  void* memory = mmap(nullptr, 2 * kReserved, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (memory == MAP_FAILED) return false;
  base = static_cast<unsigned char*>(memory);
  known = base + kReserved;
  return true;
}

// `kind` at least over [at, at + bytes)?
size_t first_below(size_t offset, size_t bytes, unsigned char kind) {
  for (size_t i = 0; i < bytes; i++)
    if (known[offset + i] < kind) return i;
  return bytes;
}

}  // namespace

bool is_device(const void* at) { return base && (uintptr_t)at - (uintptr_t)base < kReserved; }

void* device_allocate(size_t bytes) {
  const std::lock_guard<std::mutex> lock(allocating);
  if (!reserve() || used + bytes > kReserved) return nullptr;
  size_t at = kGap;
  const size_t size = (bytes + 255) / 256 * 256;
  for (const auto& [offset, length] : taken) {
    if (offset - at >= size + kGap) break;
    at = (offset + length + 255) / 256 * 256 + kGap;
  }
  if (at + size + kGap > kReserved) return nullptr;
  taken[at] = bytes, used += bytes;
  memset(base + at, 0xff, bytes);
  memset(known + at, kAllocated, bytes);
  return base + at;
}

void device_release(void* memory) {
  if (!memory) return;
  const std::lock_guard<std::mutex> lock(allocating);
  const size_t at = (size_t)((unsigned char*)memory - base);
  const auto found = taken.find(at);
  if (!is_device(memory) || found == taken.end()) return;
  used -= found->second;
  memset(known + at, kFree, found->second);
  madvise(base + at, found->second / 4096 * 4096, MADV_DONTNEED);
  taken.erase(found);
}

bool device_copy(void* to, const void* from, size_t bytes) {
  const auto valid = [&](const void* at) {
    return !is_device(at) || first_below((size_t)((const unsigned char*)at - base), bytes, kAllocated) == bytes;
  };
  if (!valid(to) || !valid(from)) return false;
  memmove(to, from, bytes);
  if (!is_device(to)) return true;
  unsigned char* state = known + ((unsigned char*)to - base);
  if (is_device(from))
    memmove(state, known + ((const unsigned char*)from - base), bytes);
  else
    memset(state, kWritten, bytes);
  return true;
}

bool device_zero(void* to, size_t bytes) {
  if (is_device(to)) {
    const size_t offset = (size_t)((unsigned char*)to - base);
    if (first_below(offset, bytes, kAllocated) != bytes) return false;
    memset(known + offset, kWritten, bytes);
  }
  memset(to, 0, bytes);
  return true;
}

void device_written(const void* at, size_t bytes) {
  if (is_device(at)) memset(known + ((const unsigned char*)at - base), kWritten, bytes);
}

void device_forget(void* at, size_t bytes) {
  if (!is_device(at)) return;
  memset(at, 0xff, bytes);
  memset(known + ((unsigned char*)at - base), kAllocated, bytes);
}

size_t device_bytes_used() { return used; }
void allow_host_memory(bool allowed) { host_allowed = allowed; }

void check_device(const void* at, size_t bytes, bool write, const void* code) {
  if (!is_device(at)) {
    if (host_allowed) return;
    report(std::string(write ? "writes" : "reads") + " memory of the host", code);
    return abandon();
  }
  const size_t offset = (size_t)((const unsigned char*)at - base);
  if (write) {
    if (first_below(offset, bytes, kAllocated) != bytes) {
      report("out of bounds: writes " + std::to_string(bytes) + " bytes of device memory that nobody allocated", code);
      return abandon();
    }
    memset(known + offset, kWritten, bytes);
    return;
  }
  const size_t bad = first_below(offset, bytes, kWritten);
  if (bad == bytes) return;
  if (known[offset + bad] == kFree) {
    report("out of bounds: reads " + std::to_string(bytes) + " bytes of device memory that nobody allocated", code);
    return abandon();
  }
  report("uninitialised: reads " + std::to_string(bytes) + " bytes of device memory, which nobody wrote", code);
}

}  // namespace emulation
