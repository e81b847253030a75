// Bits in and out of bytes, lowest first, and Rice codes of 32-bit values: the quotient by 2^k in unary, then k bits.
#ifndef SINKFLEX_MEMORY_BITS_H
#define SINKFLEX_MEMORY_BITS_H

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace sinkflex {

// A quotient of this many says that the value follows in 32 bits.
inline constexpr unsigned kRiceEscape = 24;

inline uint64_t rice_bits(uint32_t value, unsigned k) {
  const uint32_t quotient = value >> k;
  return quotient < kRiceEscape ? quotient + 1 + k : kRiceEscape + 32;
}

// The parameter that suits values of this sum: about the logarithm of their mean.
inline unsigned rice_parameter(uint64_t sum, size_t count) {
  unsigned k = 0;
  while (k < 31 && (static_cast<uint64_t>(count) << (k + 1)) <= sum + count / 2) k++;
  return k;
}

class BitWriter {
 public:
  // There must be room for what is written, and 8 bytes more.
  explicit BitWriter(uint8_t* to) : at_(to), begin_(to) {}

  // At most 56 bits.
  void put(uint64_t bits, unsigned count) {
    pending_ |= bits << held_;
    held_ += count;
    std::memcpy(at_, &pending_, 8);
    const unsigned whole = held_ / 8;
    at_ += whole;
    pending_ >>= whole * 8;
    held_ &= 7;
  }

  void rice(uint32_t value, unsigned k) {
    const uint32_t quotient = value >> k;
    if (quotient >= kRiceEscape) {
      put((uint64_t{1} << kRiceEscape) - 1, kRiceEscape);
      put(value, 32);
    } else {
      put(code(value, quotient, k), quotient + 1 + k);
    }
  }

  // Two values, one after the other.
  void rice(uint32_t first, unsigned k_first, uint32_t second, unsigned k_second) {
    const uint32_t one = first >> k_first;
    const uint32_t two = second >> k_second;
    const unsigned bits = one + 1 + k_first;
    if (one >= kRiceEscape || two >= kRiceEscape || bits + two + 1 + k_second > 56) {
      rice(first, k_first);
      rice(second, k_second);
      return;
    }
    put(code(first, one, k_first) | (code(second, two, k_second) << bits), bits + two + 1 + k_second);
  }

  // Bytes written, the last one filled up with zeros.
  size_t finish() {
    if (held_ > 0) {
      *at_++ = static_cast<uint8_t>(pending_);
      held_ = 0;
      pending_ = 0;
    }
    return static_cast<size_t>(at_ - begin_);
  }

 private:
  // The quotient in unary, then k bits.
  static uint64_t code(uint32_t value, uint32_t quotient, unsigned k) {
    const uint64_t unary = (uint64_t{1} << quotient) - 1;
    return unary | (static_cast<uint64_t>(value & ((uint64_t{1} << k) - 1)) << (quotient + 1));
  }

  uint8_t* at_;
  uint8_t* begin_;
  uint64_t pending_ = 0;
  unsigned held_ = 0;
};

class BitReader {
 public:
  BitReader(const uint8_t* from, const uint8_t* end) : at_(from), end_(end) {}

  // At most 56 bits; zeros past the end, which over() tells.
  uint64_t get(unsigned count) {
    fill();
    const uint64_t bits = pending_ & ((uint64_t{1} << count) - 1);
    drop(count);
    return bits;
  }

  uint32_t rice(unsigned k) {
    fill();
    const unsigned quotient = static_cast<unsigned>(std::countr_one(pending_));
    if (quotient >= kRiceEscape) {
      drop(kRiceEscape);
      return static_cast<uint32_t>(get(32));
    }
    const uint64_t rest = (pending_ >> (quotient + 1)) & ((uint64_t{1} << k) - 1);
    drop(quotient + 1 + k);
    return static_cast<uint32_t>((static_cast<uint64_t>(quotient) << k) | rest);
  }

  // Whether more was read than there is.
  bool over() const { return short_; }

  // Where the next whole byte begins.
  const uint8_t* next() const { return at_ - held_ / 8; }

 private:
  void fill() {
    if (end_ - at_ >= 8) {
      uint64_t word;
      std::memcpy(&word, at_, 8);
      pending_ |= word << held_;
      const unsigned whole = (63 - held_) / 8;
      at_ += whole;
      held_ += whole * 8;
      // Bits above held_ are of bytes that are read again: the same bits come to the same place.
      return;
    }
    while (held_ <= 56 && at_ < end_) {
      pending_ = (pending_ & ~(~uint64_t{0} << held_)) | (static_cast<uint64_t>(*at_++) << held_);
      held_ += 8;
    }
  }

  void drop(unsigned count) {
    if (count > held_) {
      short_ = true;
      held_ = 0;
      pending_ = 0;
      return;
    }
    pending_ >>= count;
    held_ -= count;
  }

  const uint8_t* at_;
  const uint8_t* end_;
  uint64_t pending_ = 0;
  unsigned held_ = 0;
  bool short_ = false;
};

}  // namespace sinkflex

#endif
