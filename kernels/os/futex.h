// Sleeping on a 32-bit word in memory that several processes share.
#ifndef SINKFLEX_OS_FUTEX_H
#define SINKFLEX_OS_FUTEX_H

#include <atomic>
#include <chrono>
#include <cstdint>

namespace sinkflex::os {

// Returns when woken, when *word != expected, after `timeout`, or for no reason: look at the condition again.
void futex_wait(const std::atomic<uint32_t>* word, uint32_t expected, std::chrono::nanoseconds timeout);
void futex_wake_all(std::atomic<uint32_t>* word);

}  // namespace sinkflex::os

#endif
