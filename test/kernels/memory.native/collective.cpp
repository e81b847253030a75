// Collectives without Node: every operation against a sequential reference, bit for bit; a member that is killed before
// and after each meeting, seen alike by all others; deadlines, aborts, mismatches.
#include "memory/collective.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "os/process.h"

using namespace sinkflex;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

namespace {

int number = 0;
std::atomic<bool> all_good{true};

void check(bool good, const std::string& what) {
  if (!good) all_good = false;
  std::printf("%s %d - %s\n", good ? "ok" : "not ok", ++number, what.c_str());
  std::fflush(stdout);
}

CollectiveWait within(int ms) { return {Clock::now() + milliseconds(ms), nullptr, nullptr}; }

// Runs a member a thread; false when one threw.
template <typename Body>
bool together(uint32_t members, uint64_t chunk, Body body) {
  auto group = CollectiveGroup::create(members, chunk);
  std::vector<std::thread> threads;
  std::atomic<bool> good{true};
  for (uint32_t r = 0; r < members; r++) {
    threads.emplace_back([&, r] {
      try {
        CollectiveMember member(CollectiveGroup::open(group->address()), r);
        member.barrier(within(20000));
        body(member);
        member.barrier(within(20000));
      } catch (const Error& error) {
        std::printf("# member %u: %s\n", r, error.what());
        good = false;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return good;
}

std::vector<float> numbers(uint64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& v : values)
    v = std::ldexp(static_cast<float>(static_cast<int32_t>(random())), static_cast<int>(random() % 40) - 50);
  return values;
}

std::vector<float> reference(uint32_t members, uint64_t count, uint32_t seed, Fold fold) {
  std::vector<float> out = numbers(count, seed);
  for (uint32_t r = 1; r < members; r++) {
    const std::vector<float> other = numbers(count, seed + r);
    for (uint64_t i = 0; i < count; i++) {
      if (fold == Fold::min) out[i] = std::min(out[i], other[i]);
      if (fold == Fold::max) out[i] = std::max(out[i], other[i]);
      if (fold == Fold::sum || fold == Fold::mean) out[i] += other[i];
    }
  }
  if (fold == Fold::mean)
    for (float& v : out) v /= static_cast<float>(members);
  return out;
}

bool same(const float* a, const float* b, uint64_t count) {
  return count == 0 || std::memcmp(a, b, count * sizeof(float)) == 0;
}

void operations() {
  std::mt19937 random(7);
  for (uint32_t round = 0; round < 12; round++) {
    const uint32_t members = 1 + random() % 6;
    const uint64_t chunk = 4096 * (1 + random() % 3);
    struct Call {
      uint32_t kind, root, seed;
      Fold fold;
      uint64_t count;
    };
    std::vector<Call> calls;
    for (int i = 0; i < 25; i++)
      calls.push_back({static_cast<uint32_t>(random() % 5), static_cast<uint32_t>(random() % members),
                       static_cast<uint32_t>(random() % 1000), static_cast<Fold>(random() % 4),
                       random() % 3 == 0 ? random() % 20 : random() % 20000});
    const bool good = together(members, chunk, [&](CollectiveMember& m) {
      for (const Call& c : calls) {
        std::vector<float> own = numbers(c.count, c.seed + m.rank());
        bool right = true;
        if (c.kind == 0) m.barrier(within(20000));
        if (c.kind == 1) {
          m.all_reduce(own.data(), c.count, c.fold, within(20000));
          right = same(own.data(), reference(members, c.count, c.seed, c.fold).data(), c.count);
        }
        if (c.kind == 2) {
          const uint64_t from = c.count * m.rank() / members;
          std::vector<float> out(c.count * (m.rank() + 1) / members - from);
          m.reduce_scatter(own.data(), c.count, out.data(), c.fold, within(20000));
          right = same(out.data(), reference(members, c.count, c.seed, c.fold).data() + from, out.size());
        }
        if (c.kind == 3) {
          std::vector<float> out(c.count * members);
          m.all_gather(reinterpret_cast<uint8_t*>(own.data()), c.count * 4, reinterpret_cast<uint8_t*>(out.data()),
                       within(20000));
          for (uint32_t r = 0; r < members; r++)
            right &= same(out.data() + r * c.count, numbers(c.count, c.seed + r).data(), c.count);
        }
        if (c.kind == 4) {
          m.broadcast(reinterpret_cast<uint8_t*>(own.data()), c.count * 4, c.root, within(20000));
          right = same(own.data(), numbers(c.count, c.seed + c.root).data(), c.count);
        }
        if (!right) throw Error("WRONG", "kind " + std::to_string(c.kind) + ", count " + std::to_string(c.count));
      }
    });
    check(good, std::to_string(members) + " members, chunks of " + std::to_string(chunk) + ": as the reference");
  }
}

struct Seen {
  uint32_t meetings, reason, rank, micros;
};

// Three processes run every operation again and again; rank 1 kills itself at its `at`-th look around. What the others
// saw comes back through pipes.
void killed(uint32_t at) {
  auto group = CollectiveGroup::create(3, 4096);
  int pipes[3][2];
  pid_t children[3];
  for (uint32_t r = 0; r < 3; r++) {
    if (pipe(pipes[r]) != 0) _exit(1);
    children[r] = fork();
    if (children[r] != 0) continue;
    uint32_t looks = 0;
    try {
      CollectiveMember m(CollectiveGroup::open(group->address()), r);
      m.probe = [&] {
        if (looks++ == at && r == 1) kill(getpid(), SIGKILL);
      };
      std::vector<float> data(2500, 1), out(7500);
      auto* bytes = reinterpret_cast<uint8_t*>(data.data());
      while (true) {
        m.barrier(within(20000));
        m.all_reduce(data.data(), data.size(), Fold::mean, within(20000));
        m.broadcast(bytes, data.size() * 4, 1, within(20000));
        m.all_gather(bytes, data.size() * 4, reinterpret_cast<uint8_t*>(out.data()), within(20000));
        m.reduce_scatter(data.data(), data.size(), out.data(), Fold::max, within(20000));
        m.all_reduce(data.data(), 3, Fold::min, within(20000));
      }
    } catch (const CollectiveBroken& error) {
      const Seen seen = {looks, static_cast<uint32_t>(error.reason), error.rank, 0};
      if (write(pipes[r][1], &seen, sizeof seen) != sizeof seen) _exit(1);
    } catch (...) {
      _exit(2);
    }
    _exit(0);
  }
  int status = 0;
  waitpid(children[1], &status, 0);
  const auto died = Clock::now();
  bool good = WIFSIGNALED(status);
  Seen seen[3] = {};
  for (const uint32_t r : {0u, 2u}) {
    good &= read(pipes[r][0], &seen[r], sizeof(Seen)) == sizeof(Seen);
    good &= seen[r].reason == static_cast<uint32_t>(Ending::died) && seen[r].rank == 1;
    waitpid(children[r], &status, 0);
    good &= WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  const auto took = std::chrono::duration_cast<milliseconds>(Clock::now() - died).count();
  good &= seen[0].meetings == seen[2].meetings && took < 2000;
  for (auto& ends : pipes)
    for (const int fd : ends) close(fd);
  if (!good)
    std::printf("# killed at %u: %u/%u/%u, %u/%u/%u after %lld ms\n", at, seen[0].meetings, seen[0].reason,
                seen[0].rank, seen[2].meetings, seen[2].reason, seen[2].rank, static_cast<long long>(took));
  check(good, "killed at look " + std::to_string(at) + ": one error, at the same meeting, for all");
}

template <typename Call>
void breaks(Ending reason, uint32_t rank, Call call, const std::string& what) {
  try {
    call();
    check(false, what + ": no error");
  } catch (const CollectiveBroken& error) {
    check(error.reason == reason && error.rank == rank, what + ": " + error.what());
  }
}

template <typename Call>
void refuses(const std::string& code, Call call, const std::string& what) {
  try {
    call();
    check(false, what + ": no error");
  } catch (const Error& error) {
    check(error.code == code, what + ": " + error.what());
  }
}

void ends() {
  const auto pair = [] {
    auto group = CollectiveGroup::create(2, 4096);
    return std::pair{std::make_unique<CollectiveMember>(group, 0), std::make_unique<CollectiveMember>(group, 1)};
  };
  {
    auto [a, b] = pair();
    breaks(Ending::deadline, 0, [&] { a->barrier(within(30)); }, "alone until the deadline");
    breaks(Ending::deadline, 0, [&] { b->barrier(within(1000)); }, "the other hears of it");
    breaks(Ending::deadline, 0, [&] { a->barrier(within(1000)); }, "and it stays so");
  }
  {
    auto [a, b] = pair();
    b->leave();
    breaks(Ending::left, 1, [&] { a->barrier(within(1000)); }, "left");
  }
  {
    auto [a, b] = pair();
    b.reset();
    breaks(Ending::died, 1, [&] { a->barrier(within(1000)); }, "gone without a word");
  }
  {
    auto [a, b] = pair();
    std::atomic<bool> abort{false};
    std::thread later([&] {
      std::this_thread::sleep_for(milliseconds(20));
      abort = true;
    });
    breaks(Ending::aborted, 0, [&] { a->barrier({Clock::now() + milliseconds(5000), nullptr, &abort}); }, "aborted");
    later.join();
  }
  {
    auto group = CollectiveGroup::create(2, 4096);
    check(!group->settled(), "nobody has joined");
    CollectiveMember a(group, 0);
    refuses("SINKFLEX_BAD_ARGUMENT", [&] { CollectiveMember again(group, 0); }, "a rank twice");
    refuses("SINKFLEX_BAD_ARGUMENT", [&] { CollectiveMember third(group, 2); }, "no such rank");
    CollectiveMember b(CollectiveGroup::open(group->address()), 1);
    check(group->settled(), "all have joined");
    std::thread other([&] {
      std::vector<float> data(10);
      refuses(
          "SINKFLEX_COLLECTIVE_MISMATCH", [&] { b.all_reduce(data.data(), 10, Fold::sum, within(5000)); },
          "another size");
      b.barrier(within(5000));
    });
    std::vector<float> data(11);
    try {
      a.all_reduce(data.data(), 11, Fold::sum, within(5000));
      all_good = false;
    } catch (const Error& error) {
      if (error.code != "SINKFLEX_COLLECTIVE_MISMATCH") all_good = false;
    }
    a.barrier(within(5000));
    other.join();
    check(all_good, "after a mismatch the group goes on");
  }
  CollectiveAddress stale = CollectiveGroup::create(1, 4096)->address();
  refuses("SINKFLEX_COLLECTIVE_GONE", [&] { CollectiveGroup::open(stale); }, "closed before it was joined");
  stale.start_time++;
  refuses("SINKFLEX_COLLECTIVE_GONE", [&] { CollectiveGroup::open(stale); }, "another incarnation of the process");
}

}  // namespace

int main() {
  std::printf("TAP version 14\n");
  for (uint32_t at = 0; at < 48; at++) killed(at);  // forks: before there are threads
  operations();
  ends();
  std::printf("1..%d\n", number);
  return all_good ? 0 : 1;
}
