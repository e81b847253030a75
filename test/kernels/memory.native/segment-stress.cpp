// Readers and writers in processes of their own, killed with SIGKILL at seeded random moments, some thousand flips
// between two kills: no torn read, no version that goes back, no lock or slot that stays with the dead. Argument: the
// seed (default 1) and the kills (400).
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>

#include "error.h"
#include "memory/control_block.h"
#include "memory/versioned_segment.h"

using sinkflex::Error;
using sinkflex::Version;
using sinkflex::VersionedSegment;

namespace {

constexpr uint64_t kWords = 2048;
enum Verdict { kTorn = 10, kBackwards = 11, kThrew = 12 };

uint64_t fill_of(const Version& v) { return (uint64_t{v.lineage} << 32 | v.version) * 0x9e3779b97f4a7c15ull + 1; }
uint64_t order_of(const Version& v) { return uint64_t{v.lineage} << 32 | v.version; }

[[noreturn]] void read_forever(const sinkflex::SegmentAddress& address, uint32_t seed) {
  const auto segment = VersionedSegment::open(address);
  std::minstd_rand random(seed);
  uint64_t last = 0;
  while (true) {
    VersionedSegment::Reader reader(segment, seed);
    for (int pins = static_cast<int>(random() % 200); pins >= 0; pins--) {
      Version version;
      const auto* words = reinterpret_cast<const volatile uint64_t*>(reader.pin(&version));
      if (order_of(version) < last) _exit(kBackwards);
      last = order_of(version);
      for (int look = 0; look < 2; look++) {
        for (uint64_t i = 0; i < kWords; i++) {
          if (words[i] != fill_of(version)) _exit(kTorn);
        }
      }
      if (random() % 4 == 0) reader.release();
    }
  }
}

[[noreturn]] void write_forever(const sinkflex::SegmentAddress& address, uint32_t seed) {
  const auto segment = VersionedSegment::open(address);
  std::minstd_rand random(seed);
  while (true) {
    auto writing = segment->begin_write({std::chrono::seconds(20)});
    const Version now = *segment->current();
    const Version next =
        random() % 1000 == 0 ? Version{now.lineage + 1, now.version / 2} : Version{now.lineage, now.version + 1};
    auto* words = reinterpret_cast<uint64_t*>(writing.data());
    for (uint64_t i = 0; i < kWords; i++) words[i] = fill_of(next);
    if (random() % 16 == 0) continue;  // abandoned
    writing.publish(next.lineage, next.version);
  }
}

pid_t start(const sinkflex::SegmentAddress& address, bool reader, uint32_t seed) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  try {
    if (reader) read_forever(address, seed);
    write_forever(address, seed);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s %s\n", error.code.c_str(), error.what());
  }
  _exit(kThrew);
}

bool check(bool good, const char* what) {
  static int number = 0;
  std::printf("%s %d - %s\n", good ? "ok" : "not ok", ++number, what);
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  const uint32_t seed = argc > 1 ? static_cast<uint32_t>(std::atoi(argv[1])) : 1;
  const int kills = argc > 2 ? std::atoi(argv[2]) : 400;
  std::printf("TAP version 14\n");
  auto segment = VersionedSegment::create({kWords * 8, 3, 6, 16});
  const auto publish = [&](const Version& v) {
    auto writing = segment->begin_write({std::chrono::seconds(20)});
    auto* words = reinterpret_cast<uint64_t*>(writing.data());
    for (uint64_t i = 0; i < kWords; i++) words[i] = fill_of(v);
    writing.publish(v.lineage, v.version);
  };
  publish({0, 0});

  std::minstd_rand random(seed);
  std::map<pid_t, bool> living;  // pid -> reader
  for (int i = 0; i < 5; i++) living[start(segment->address(), i < 3, seed + static_cast<uint32_t>(i))] = i < 3;
  int bad = 0;
  for (int i = 0; i < kills; i++) {
    usleep(static_cast<useconds_t>(random() % 6000));
    auto victim = living.begin();
    std::advance(victim, random() % living.size());
    const auto [pid, reader] = *victim;
    kill(pid, SIGKILL);
    int status = 0;
    waitpid(pid, &status, 0);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) {
      bad++;
      std::printf("# %s ended with %s %d\n", reader ? "a reader" : "a writer", WIFEXITED(status) ? "code" : "signal",
                  WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    }
    living.erase(victim);
    living[start(segment->address(), reader, seed * 1000003u + static_cast<uint32_t>(i))] = reader;
  }
  for (const auto& [pid, reader] : living) kill(pid, SIGKILL);
  for (const auto& [pid, reader] : living) waitpid(pid, nullptr, 0);

  bool good = check(bad == 0, "no process saw a torn slot, a version that went back, or an error");
  const Version now = *segment->current();
  std::printf("# %d kills, last version %u.%u, %u slots\n", kills, now.lineage, now.version, segment->slots());
  good &= check(now.lineage + now.version > static_cast<uint32_t>(kills), "versions were published between the kills");
  std::vector<VersionedSegment::Reader> readers;
  Version last = now;
  for (uint32_t i = 0; i < 5; i++) {
    publish(last = Version{now.lineage, now.version + 1 + i});
    readers.emplace_back(segment);
    readers.back().pin(&last);
  }
  publish({last.lineage, last.version + 1});
  good &= check(segment->pins().size() == 5, "every row and slot of the dead came back");
  while (readers.size() < 16) readers.emplace_back(segment);
  good &= check(true, "every reader row can be claimed");
  std::printf("1..4\n");
  return good ? 0 : 1;
}
