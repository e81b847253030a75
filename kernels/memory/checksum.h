// A checksum that tells damaged bytes from whole ones, at memory speed. It guards against accidents, not against
// people.
#ifndef SINKFLEX_MEMORY_CHECKSUM_H
#define SINKFLEX_MEMORY_CHECKSUM_H

#include <cstdint>
#include <cstring>

namespace sinkflex {

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

}  // namespace sinkflex

#endif
