#include "futex.h"

#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>
#else
#include <thread>
#endif

namespace sinkflex::os {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t) && std::atomic<uint32_t>::is_always_lock_free);

#ifdef __linux__
void futex_wait(const std::atomic<uint32_t>* word, uint32_t expected, std::chrono::nanoseconds timeout) {
  if (timeout.count() <= 0) return;
  timespec limit{};
  limit.tv_sec = timeout.count() / 1000000000;
  limit.tv_nsec = timeout.count() % 1000000000;
  // Not FUTEX_PRIVATE: the word is shared between processes.
  syscall(SYS_futex, word, FUTEX_WAIT, expected, &limit, nullptr, 0);
}

void futex_wake_all(std::atomic<uint32_t>* word) { syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }
#else
// No cross-process futex before macOS 14.4: look every 100 microseconds.
void futex_wait(const std::atomic<uint32_t>* word, uint32_t expected, std::chrono::nanoseconds timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  while (word->load(std::memory_order_acquire) == expected && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

void futex_wake_all(std::atomic<uint32_t>*) {}
#endif

}  // namespace sinkflex::os
