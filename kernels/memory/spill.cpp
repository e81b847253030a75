#include "spill.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "../os/failure.h"
#include "checksum.h"

namespace sinkflex {
namespace {

constexpr uint64_t kChunk = uint64_t{1} << 20;  // summed while it is in the cache

}  // namespace

uint64_t write_out(int fd, const uint8_t* data, uint64_t bytes) {
  Checksum checksum;
  for (uint64_t at = 0; at < bytes;) {
    const uint64_t chunk = std::min(kChunk, bytes - at);
    checksum.add(data + at, chunk);
    for (uint64_t done = 0; done < chunk;) {
      const ssize_t wrote = pwrite(fd, data + at + done, chunk - done, static_cast<off_t>(at + done));
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote < 0 && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG))
        throw Error("SINKFLEX_OBJECT_STORE_FULL", "the disk has no room for a value of " + std::to_string(bytes) +
                                                      " bytes (" + std::strerror(errno) + ")");
      if (wrote <= 0) throw os::failure("writing a value to disk");
      done += static_cast<uint64_t>(wrote);
    }
    at += chunk;
  }
  return checksum.value();
}

uint64_t read_in(int fd, uint8_t* data, uint64_t bytes) {
  Checksum checksum;
  for (uint64_t at = 0; at < bytes;) {
    const uint64_t chunk = std::min(kChunk, bytes - at);
    for (uint64_t done = 0; done < chunk;) {
      const ssize_t got = pread(fd, data + at + done, chunk - done, static_cast<off_t>(at + done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw os::failure("reading a value from disk");
      if (got == 0) throw Error("SINKFLEX_OS_FAILED", "the file of a value ends too early");
      done += static_cast<uint64_t>(got);
    }
    checksum.add(data + at, chunk);
    at += chunk;
  }
  return checksum.value();
}

}  // namespace sinkflex
