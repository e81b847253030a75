#include "spill.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "../os/failure.h"

namespace sinkflex {
namespace {

constexpr uint64_t kChunk = uint64_t{1} << 20;  // summed while it is in the cache

// Four lanes of 8-byte words: each word is mixed with its lane's state by an odd factor and a rotation, so that order
// and place count.
class Checksum {
 public:
  // All but the last call have multiples of 32 bytes.
  void add(const uint8_t* data, uint64_t bytes) {
    uint64_t at = 0;
    for (; at + 32 <= bytes; at += 32) {
      uint64_t words[4];
      std::memcpy(words, data + at, sizeof words);
      for (int i = 0; i < 4; i++) lanes_[i] = mix(lanes_[i], words[i]);
    }
    for (; at < bytes; at++) lanes_[at % 4] = mix(lanes_[at % 4], data[at] + 1u);
    total_ += bytes;
  }
  uint64_t value() const {
    uint64_t sum = total_;
    for (const uint64_t lane : lanes_) sum = mix(sum, lane ^ (lane >> 29));
    return sum ^ (sum >> 32);
  }

 private:
  static uint64_t mix(uint64_t state, uint64_t word) {
    const uint64_t product = (state ^ word) * 0xd6e8feb86659fd93u;
    return (product << 27) | (product >> 37);
  }
  uint64_t lanes_[4] = {0x51, 0x9e3779b97f4a7c15u, 0xa5a5a5a5u, 0x1234567u};
  uint64_t total_ = 0;
};

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
