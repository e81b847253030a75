#include "bulk_copy.h"

#include <algorithm>
#include <cstring>
#include <system_error>
#include <thread>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace sinkflex {
namespace {

constexpr size_t kLine = 64;
// A copy of this size evicts more than it leaves in a second-level cache.
constexpr size_t kStreamFrom = size_t{4} << 20;
// Starting a thread costs about as much as copying 256 KiB.
constexpr size_t kBytesPerThread = size_t{2} << 20;
constexpr unsigned kMostThreads = 4;  // these reach the memory's bandwidth

#if defined(__x86_64__)
// Stores that bypass the caches save reading the target first.
void stream(uint8_t* to, const uint8_t* from, size_t bytes) {
  const size_t head = std::min(bytes, (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine);
  std::memcpy(to, from, head);
  size_t at = head;
  for (; at + kLine <= bytes; at += kLine) {
    const auto* source = reinterpret_cast<const __m128i*>(from + at);
    auto* target = reinterpret_cast<__m128i*>(to + at);
    const __m128i a = _mm_loadu_si128(source);
    const __m128i b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2);
    const __m128i d = _mm_loadu_si128(source + 3);
    _mm_prefetch(reinterpret_cast<const char*>(from + at + 8 * kLine), _MM_HINT_NTA);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
  std::memcpy(to + at, from + at, bytes - at);
  _mm_sfence();  // streamed stores are ordered by nothing else
}
#else
void stream(uint8_t* to, const uint8_t* from, size_t bytes) { std::memcpy(to, from, bytes); }
#endif

// Copies [from, to) of the pieces laid end to end.
void copy_range(const std::vector<CopyPiece>& pieces, size_t from, size_t to, bool streaming) {
  size_t start = 0;
  for (const CopyPiece& piece : pieces) {
    const size_t low = std::max(from, start);
    const size_t high = std::min(to, start + piece.bytes);
    if (low < high) {
      const size_t skip = low - start;
      if (streaming && high - low >= 4096)
        stream(piece.to + skip, piece.from + skip, high - low);
      else
        std::memcpy(piece.to + skip, piece.from + skip, high - low);
    }
    start += piece.bytes;
    if (start >= to) break;
  }
}

}  // namespace

void bulk_copy(const std::vector<CopyPiece>& pieces, unsigned threads) {
  size_t total = 0;
  for (const CopyPiece& piece : pieces) total += piece.bytes;
  if (threads == 0) {
    const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
    threads = static_cast<unsigned>(std::clamp<size_t>(total / kBytesPerThread, 1, std::min(cores, kMostThreads)));
  }
  const bool streaming = total >= kStreamFrom;
  const size_t share = (total / threads + kLine - 1) / kLine * kLine;
  std::vector<std::thread> helpers;
  size_t begin = 0;
  try {
    for (unsigned i = 1; i < threads && begin + share < total; i++) {
      helpers.emplace_back(copy_range, std::cref(pieces), begin, begin + share, streaming);
      begin += share;
    }
  } catch (const std::system_error&) {
    // No thread to be had: this one copies what is left.
  }
  copy_range(pieces, begin, total, streaming);
  for (std::thread& helper : helpers) helper.join();
}

}  // namespace sinkflex
