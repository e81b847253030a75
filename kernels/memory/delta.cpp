#include "delta.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "../error.h"
#include "bits.h"
#include "checksum.h"

namespace sinkflex {
namespace {

constexpr char kMagic[8] = {'S', 'F', 'D', 'E', 'L', 'T', 'A', '1'};
constexpr size_t kHeader = 24;
constexpr size_t kEntry = 16;
constexpr size_t kPiece = size_t{1} << 20;
constexpr size_t kBlock = 4096;  // elements
constexpr size_t kFew = 16;
enum How : uint8_t { kSame = 0, kSparse = 1, kDense = 2, kRaw = 3 };

Error damaged(const std::string& why) {
  return Error("SINKFLEX_DELTA_DAMAGED", "this change of weights cannot be applied: " + why);
}

template <typename T>
void store(uint8_t* to, T value) {
  std::memcpy(to, &value, sizeof value);
}
template <typename T>
T load(const uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Differences of patterns: small for values that are near each other. Wraps within the width.
template <typename Word>
uint32_t zigzag(Word before, Word now) {
  using Signed = std::make_signed_t<Word>;
  const auto change = static_cast<Signed>(static_cast<Word>(now - before));
  return static_cast<Word>(static_cast<Word>(static_cast<Word>(change) << 1) ^ static_cast<Word>(change < 0 ? -1 : 0));
}
template <typename Word>
Word unzigzag(Word before, uint32_t code) {
  const auto word = static_cast<Word>(code);
  return static_cast<Word>(before + static_cast<Word>(static_cast<Word>(word >> 1) ^ static_cast<Word>(-(word & 1))));
}

// The elements of a block that have changed.
struct Changes {
  size_t count = 0;
  std::array<uint16_t, kBlock> at;
  std::array<uint32_t, kBlock> code;
  uint64_t sum = 0;
};

// A bit for each of 64 elements that differs.
#if defined(__SSE2__)
inline __m128i equal(const uint8_t* a, const uint8_t* b, uint16_t) {
  return _mm_cmpeq_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(a)),
                         _mm_loadu_si128(reinterpret_cast<const __m128i*>(b)));
}
inline __m128i equal(const uint8_t* a, const uint8_t* b, uint32_t) {
  const auto half = [&](size_t at) {
    return _mm_cmpeq_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(a + at)),
                           _mm_loadu_si128(reinterpret_cast<const __m128i*>(b + at)));
  };
  return _mm_packs_epi32(half(0), half(16));
}
template <typename Word>
uint64_t differing(const uint8_t* a, const uint8_t* b) {
  constexpr size_t kEight = 8 * sizeof(Word);
  uint64_t same = 0;
  for (size_t i = 0; i < 4; i++) {
    const size_t at = 2 * i * kEight;
    const __m128i both =
        _mm_packs_epi16(equal(a + at, b + at, Word{}), equal(a + at + kEight, b + at + kEight, Word{}));
    same |= static_cast<uint64_t>(static_cast<uint32_t>(_mm_movemask_epi8(both))) << (16 * i);
  }
  return ~same;
}
#else
template <typename Word>
uint64_t differing(const uint8_t* a, const uint8_t* b) {
  uint64_t mask = 0;
  for (size_t i = 0; i < 64; i++)
    mask |= static_cast<uint64_t>(load<Word>(a + i * sizeof(Word)) != load<Word>(b + i * sizeof(Word))) << i;
  return mask;
}
#endif

template <typename Word>
void find_changes(const uint8_t* before, const uint8_t* now, size_t elements, Changes& changes) {
  size_t count = 0;
  uint64_t sum = 0;
  const auto keep = [&](size_t i) {
    const uint32_t code = zigzag(load<Word>(before + i * sizeof(Word)), load<Word>(now + i * sizeof(Word)));
    changes.at[count] = static_cast<uint16_t>(i);
    changes.code[count++] = code;
    sum += code;
  };
  size_t i = 0;
  for (; i + 64 <= elements; i += 64) {
    for (uint64_t mask = differing<Word>(before + i * sizeof(Word), now + i * sizeof(Word)); mask != 0;
         mask &= mask - 1)
      keep(i + static_cast<size_t>(std::countr_zero(mask)));
  }
  for (; i < elements; i++)
    if (load<Word>(before + i * sizeof(Word)) != load<Word>(now + i * sizeof(Word))) keep(i);
  changes.count = count;
  changes.sum = sum;
}

template <typename Word>
size_t encode_block(const uint8_t* before, const uint8_t* now, size_t elements, Changes& changes, uint8_t* to) {
  const size_t raw = elements * sizeof(Word);
  if (before != nullptr) {
    find_changes<Word>(before, now, elements, changes);
    const size_t count = changes.count;
    if (count == 0) {
      to[0] = kSame;
      return 1;
    }
    const unsigned k_gap = rice_parameter(elements - count, count);
    // A change is never 0, so codes from 1 on are written as from 0.
    const unsigned k_code = rice_parameter(changes.sum - count, count);
    const unsigned k_all = rice_parameter(changes.sum, elements);
    uint64_t sparse = 0;
    uint64_t dense = (elements - count) * (uint64_t{k_all} + 1);
    size_t next = 0;
    // Few changes are sparse: at most 112 bits each, where the dense form has a bit for every element.
    const bool few = count <= elements / kFew;
    for (size_t i = 0; i < count && !few; i++) {
      sparse += rice_bits(static_cast<uint32_t>(changes.at[i] - next), k_gap) + rice_bits(changes.code[i] - 1, k_code);
      dense += rice_bits(changes.code[i], k_all);
      next = changes.at[i] + 1u;
    }
    if (few || (5 + (sparse + 7) / 8 < raw && sparse <= dense)) {
      to[0] = kSparse;
      store(to + 1, static_cast<uint16_t>(count));
      to[3] = static_cast<uint8_t>(k_gap);
      to[4] = static_cast<uint8_t>(k_code);
      BitWriter bits(to + 5);
      next = 0;
      for (size_t i = 0; i < count; i++) {
        bits.rice(static_cast<uint32_t>(changes.at[i] - next), k_gap, changes.code[i] - 1, k_code);
        next = changes.at[i] + 1u;
      }
      return 5 + bits.finish();
    }
    if (2 + (dense + 7) / 8 < raw) {
      to[0] = kDense;
      to[1] = static_cast<uint8_t>(k_all);
      BitWriter bits(to + 2);
      for (size_t i = 0; i < elements; i++)
        bits.rice(zigzag(load<Word>(before + i * sizeof(Word)), load<Word>(now + i * sizeof(Word))), k_all);
      return 2 + bits.finish();
    }
  }
  to[0] = kRaw;
  std::memcpy(to + 1, now, raw);
  return 1 + raw;
}

template <typename Word>
const uint8_t* apply_block(const uint8_t* from, const uint8_t* end, const uint8_t* before, size_t elements,
                           uint8_t* now) {
  const size_t raw = elements * sizeof(Word);
  const auto left = [&] { return static_cast<size_t>(end - from); };
  if (left() < 1) throw damaged("it is cut off");
  const uint8_t how = *from++;
  if (how == kRaw) {
    if (left() < raw) throw damaged("it is cut off");
    std::memcpy(now, from, raw);
    return from + raw;
  }
  if (before == nullptr || how > kRaw) throw damaged("a block is malformed");
  if (how == kSame) {
    std::memcpy(now, before, raw);
    return from;
  }
  if (left() < (how == kDense ? 1u : 4u)) throw damaged("it is cut off");
  if (how == kDense) {
    const unsigned k = *from++;
    if (k > 31) throw damaged("a block is malformed");
    BitReader bits(from, end);
    for (size_t i = 0; i < elements; i++)
      store(now + i * sizeof(Word), unzigzag(load<Word>(before + i * sizeof(Word)), bits.rice(k)));
    if (bits.over()) throw damaged("it is cut off");
    return bits.next();
  }
  const size_t count = load<uint16_t>(from);
  const unsigned k_gap = from[2];
  const unsigned k_code = from[3];
  if (k_gap > 31 || k_code > 31) throw damaged("a block is malformed");
  std::memcpy(now, before, raw);
  BitReader bits(from + 4, end);
  size_t at = 0;
  for (size_t i = 0; i < count; i++, at++) {
    at += bits.rice(k_gap);
    const uint32_t code = bits.rice(k_code) + 1;
    if (at >= elements) throw damaged(bits.over() ? "it is cut off" : "a block is malformed");
    store(now + at * sizeof(Word), unzigzag(load<Word>(before + at * sizeof(Word)), code));
  }
  if (bits.over()) throw damaged("it is cut off");
  return bits.next();
}

// Each block is added to the checksum while it is in the nearest cache.
template <typename Word>
size_t encode_piece(const uint8_t* before, const uint8_t* now, size_t bytes, Checksum& checksum, uint8_t* to) {
  const size_t elements = bytes / sizeof(Word);
  Changes changes;
  uint8_t* at = to;
  for (size_t i = 0; i < elements; i += kBlock) {
    const size_t offset = i * sizeof(Word);
    const size_t count = std::min(kBlock, elements - i);
    at += encode_block<Word>(before == nullptr ? nullptr : before + offset, now + offset, count, changes, at);
    checksum.add(now + offset, count * sizeof(Word));
  }
  return static_cast<size_t>(at - to);
}

template <typename Word>
void apply_piece(const uint8_t* from, const uint8_t* end, const uint8_t* before, uint8_t* now, size_t bytes,
                 Checksum& checksum) {
  const size_t elements = bytes / sizeof(Word);
  for (size_t i = 0; i < elements; i += kBlock) {
    const size_t offset = i * sizeof(Word);
    const size_t count = std::min(kBlock, elements - i);
    from = apply_block<Word>(from, end, before == nullptr ? nullptr : before + offset, count, now + offset);
    checksum.add(now + offset, count * sizeof(Word));
  }
  if (from != end) throw damaged("a piece is longer than its blocks");
}

// Calls do(piece) for each of them, from several threads; the first exception comes out.
template <typename Do>
void each_piece(size_t pieces, unsigned threads, const Do& run) {
  std::atomic<size_t> next{0};
  std::atomic<bool> failed{false};
  std::exception_ptr error;
  const auto work = [&] {
    try {
      for (size_t i; !failed && (i = next++) < pieces;) run(i);
    } catch (...) {
      if (!failed.exchange(true)) error = std::current_exception();
    }
  };
  std::vector<std::thread> helpers;
  helpers.reserve(std::min<size_t>(threads, pieces));
  try {
    for (unsigned i = 1; i < std::min<size_t>(threads, pieces); i++) helpers.emplace_back(work);
  } catch (const std::system_error&) {
    // No thread to be had: this one does what is left.
  }
  work();
  for (std::thread& helper : helpers) helper.join();
  if (error) std::rethrow_exception(error);
}

size_t piece_count(size_t bytes) { return (bytes + kPiece - 1) / kPiece; }

}  // namespace

std::vector<uint8_t> encode_delta(const uint8_t* before, const uint8_t* now, size_t bytes, unsigned width,
                                  unsigned threads) {
  const size_t pieces = piece_count(bytes);
  std::vector<std::vector<uint8_t>> codes(pieces);
  std::vector<uint64_t> sums(pieces);
  each_piece(pieces, threads, [&](size_t i) {
    // A block may take its raw bytes and one, and the writer of bits 8 more. Most of it is not touched.
    const auto room = std::make_unique_for_overwrite<uint8_t[]>(kPiece + kPiece / kBlock + 64);
    Checksum checksum;
    const size_t at = i * kPiece;
    const size_t count = std::min(kPiece, bytes - at);
    const uint8_t* from = before == nullptr ? nullptr : before + at;
    const size_t length = width == 2 ? encode_piece<uint16_t>(from, now + at, count, checksum, room.get())
                                     : encode_piece<uint32_t>(from, now + at, count, checksum, room.get());
    codes[i].assign(room.get(), room.get() + length);
    sums[i] = checksum.value();
  });
  size_t total = kHeader + pieces * kEntry;
  for (const auto& code : codes) total += code.size();
  std::vector<uint8_t> delta(total);
  std::memcpy(delta.data(), kMagic, sizeof kMagic);
  store<uint64_t>(delta.data() + 8, bytes);
  store<uint32_t>(delta.data() + 16, width);
  store<uint32_t>(delta.data() + 20, before == nullptr ? 0 : 1);
  size_t at = kHeader + pieces * kEntry;
  for (size_t i = 0; i < pieces; i++) {
    uint8_t* entry = delta.data() + kHeader + i * kEntry;
    store<uint64_t>(entry, codes[i].size());
    store<uint64_t>(entry + 8, sums[i]);
    std::memcpy(delta.data() + at, codes[i].data(), codes[i].size());
    at += codes[i].size();
  }
  return delta;
}

void apply_delta(const uint8_t* delta, size_t delta_bytes, const uint8_t* before, uint8_t* now, size_t bytes,
                 unsigned threads) {
  if (delta_bytes < kHeader || std::memcmp(delta, kMagic, sizeof kMagic) != 0) throw damaged("it is none");
  if (load<uint64_t>(delta + 8) != bytes)
    throw damaged("it is for " + std::to_string(load<uint64_t>(delta + 8)) + " bytes, there are " +
                  std::to_string(bytes));
  const uint32_t width = load<uint32_t>(delta + 16);
  const uint32_t changes = load<uint32_t>(delta + 20);
  if ((width != 2 && width != 4) || bytes % width != 0 || changes > 1) throw damaged("its header is malformed");
  if (changes == 1 && before == nullptr) throw damaged("it changes another version, and there is none");
  const size_t pieces = piece_count(bytes);
  if ((delta_bytes - kHeader) / kEntry < pieces) throw damaged("it is cut off");
  std::vector<size_t> begins(pieces + 1);
  begins[0] = kHeader + pieces * kEntry;
  for (size_t i = 0; i < pieces; i++) {
    const uint64_t length = load<uint64_t>(delta + kHeader + i * kEntry);
    if (length > delta_bytes - begins[i]) throw damaged("it is cut off");
    begins[i + 1] = begins[i] + length;
  }
  if (begins[pieces] != delta_bytes) throw damaged("something follows its end");
  each_piece(pieces, threads, [&](size_t i) {
    const size_t at = i * kPiece;
    const size_t count = std::min(kPiece, bytes - at);
    const uint8_t* base = changes == 0 ? nullptr : before + at;
    Checksum checksum;
    if (width == 2)
      apply_piece<uint16_t>(delta + begins[i], delta + begins[i + 1], base, now + at, count, checksum);
    else
      apply_piece<uint32_t>(delta + begins[i], delta + begins[i + 1], base, now + at, count, checksum);
    if (checksum.value() != load<uint64_t>(delta + kHeader + i * kEntry + 8))
      throw damaged("what comes out is not what went in: it changes another version, or was damaged on its way");
  });
}

}  // namespace sinkflex
