#include "bulk_copy.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
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
constexpr size_t kPage = 4096;
// Translations of addresses are fetched so far ahead: a streamed store waits for its own, and nothing else brings it.
constexpr size_t kAhead = 4 * kPage;

// Stores that bypass the caches save reading the target first.
void stream(uint8_t* to, const uint8_t* from, size_t bytes) {
  const size_t head = std::min(bytes, (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine);
  std::memcpy(to, from, head);
  size_t at = head;
  while (bytes - at >= kLine) {
    _mm_prefetch(reinterpret_cast<const char*>(from + at + kAhead), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(to + at + kAhead), _MM_HINT_T0);
    const size_t end = at + std::min(kPage, (bytes - at) / kLine * kLine);
    for (; at < end; at += kLine) {
      const auto* source = reinterpret_cast<const __m128i*>(from + at);
      auto* target = reinterpret_cast<__m128i*>(to + at);
      const __m128i a = _mm_loadu_si128(source);
      const __m128i b = _mm_loadu_si128(source + 1);
      const __m128i c = _mm_loadu_si128(source + 2);
      const __m128i d = _mm_loadu_si128(source + 3);
      _mm_stream_si128(target, a);
      _mm_stream_si128(target + 1, b);
      _mm_stream_si128(target + 2, c);
      _mm_stream_si128(target + 3, d);
    }
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

// A copy that several threads take parts of until none is left.
class SharedCopy {
 public:
  SharedCopy(const std::vector<CopyPiece>& pieces, size_t total) : pieces_(pieces), total_(total), left_(total) {}

  void help() {
    for (;;) {
      const size_t begin = next_.fetch_add(kPart);
      if (begin >= total_) return;
      const size_t end = std::min(begin + kPart, total_);
      copy_range(pieces_, begin, end, total_ >= kStreamFrom);
      if (left_.fetch_sub(end - begin) == end - begin) left_.notify_all();
    }
  }
  void finish() {
    help();
    for (size_t left = left_; left != 0; left = left_) left_.wait(left);
  }

 private:
  static constexpr size_t kPart = size_t{512} << 10;

  const std::vector<CopyPiece> pieces_;
  const size_t total_;
  std::atomic<size_t> next_{0};
  std::atomic<size_t> left_;  // bytes that are not copied yet
};

// Threads that help. Nobody waits for one that has not begun when the copy is done: on a busy machine that takes longer
// than the copy.
class Helpers {
 public:
  ~Helpers() {
    for (Helper& helper : helpers_) helper.thread.join();
  }
  void start(const std::shared_ptr<SharedCopy>& copy, unsigned count) {
    const std::lock_guard lock(mutex_);
    std::erase_if(helpers_, [](Helper& helper) {
      if (!*helper.ended) return false;
      helper.thread.join();
      return true;
    });
    try {
      for (unsigned i = 0; i < count; i++) {
        auto ended = std::make_shared<std::atomic<bool>>(false);
        helpers_.push_back({std::thread([copy, ended] {
                              copy->help();
                              *ended = true;
                            }),
                            ended});
      }
    } catch (const std::system_error&) {
      // No thread to be had: the caller copies by itself.
    }
  }

 private:
  struct Helper {
    std::thread thread;
    std::shared_ptr<std::atomic<bool>> ended;
  };
  std::mutex mutex_;
  std::vector<Helper> helpers_;
};

}  // namespace

void bulk_copy(const std::vector<CopyPiece>& pieces, unsigned threads) {
  size_t total = 0;
  for (const CopyPiece& piece : pieces) total += piece.bytes;
  if (threads == 0) {
    const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
    threads = static_cast<unsigned>(std::clamp<size_t>(total / kBytesPerThread, 1, std::min(cores, kMostThreads)));
  }
  if (threads == 1) return copy_range(pieces, 0, total, total >= kStreamFrom);
  static Helpers helpers;
  const auto copy = std::make_shared<SharedCopy>(pieces, total);
  helpers.start(copy, threads - 1);
  copy->finish();
}

}  // namespace sinkflex
