// Many short pins against many small flips on threads of one process: the window between reading `current` and writing
// the row is a few nanoseconds, so only millions of both show a protocol that forgets to look again. Argument: seconds
// (default 2).
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "memory/versioned_segment.h"

using sinkflex::Version;
using sinkflex::VersionedSegment;

int main(int argc, char** argv) {
  const auto seconds = std::chrono::seconds(argc > 1 ? std::atoi(argv[1]) : 2);
  constexpr uint32_t kWords = 16;
  auto segment = VersionedSegment::create({kWords * 4, 2, 8, 8});
  const auto publish = [&](uint32_t version) {
    auto writing = segment->begin_write();
    // Relaxed atomics: a torn read is a wrong value here, never undefined behaviour.
    auto* words = reinterpret_cast<std::atomic<uint32_t>*>(writing.data());
    for (uint32_t i = 0; i < kWords; i++) words[i].store(version, std::memory_order_relaxed);
    writing.publish(0, version);
  };
  publish(1);
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> pins{0}, torn{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; i++) {
    threads.emplace_back([&] {
      VersionedSegment::Reader reader(segment);
      uint64_t count = 0;
      while (!stop.load(std::memory_order_relaxed)) {
        Version version;
        const auto* words = reinterpret_cast<const std::atomic<uint32_t>*>(reader.pin(&version));
        for (int look = 0; look < 4; look++) {
          for (uint32_t w = 0; w < kWords; w++) torn += words[w].load(std::memory_order_relaxed) != version.version;
        }
        if (++count % 2 == 0) reader.release();
      }
      pins += count;
    });
  }
  const auto end = std::chrono::steady_clock::now() + seconds;
  uint32_t version = 1;
  while (std::chrono::steady_clock::now() < end) publish(++version);
  stop = true;
  for (auto& thread : threads) thread.join();
  std::printf("TAP version 14\n%s 1 - %llu pins against %u flips: %llu torn words\n1..1\n", torn == 0 ? "ok" : "not ok",
              static_cast<unsigned long long>(pins), version, static_cast<unsigned long long>(torn));
  return torn == 0 ? 0 : 1;
}
