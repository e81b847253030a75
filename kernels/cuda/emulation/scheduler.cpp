// Runs the blocks of a launch one after the other, the threads of a block as fibers in a seeded order, until all have
// returned or none can go on.
#include <stdlib.h>
#include <sys/mman.h>

#include <algorithm>
#include <mutex>

#include "launch.h"
#include "machine.h"

namespace emulation {

Place place;
Machine machine;

namespace {

std::mutex one_launch;
uint64_t base_seed = 1;
const Launch* running;

struct Random {
  uint64_t state;
  uint64_t next() {  // splitmix64
    uint64_t z = (state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  int below(int n) { return (int)(next() % (uint64_t)n); }
  template <class T>
  void shuffle(T* items, int n) {
    for (int i = n - 1; i > 0; i--) std::swap(items[i], items[below(i + 1)]);
  }
};

void* reserve(size_t bytes) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return at == MAP_FAILED ? nullptr : at;
}

bool prepare_memory() {
  if (machine.stacks) return true;
  machine.shared = static_cast<unsigned char*>(reserve(kSharedMost + 4096));
  machine.stacks = static_cast<unsigned char*>(reserve(kMaxThreads * kStackBytes));
  if (!machine.shared || !machine.stacks) return false;
  // A kernel whose stack overflows stops here and not in its neighbour's.
  for (int i = 0; i < kMaxThreads; i++) mprotect(machine.stacks + i * kStackBytes, kGuardBytes, PROT_NONE);
  return true;
}

void open_barrier() {
  machine.at_barrier = 0;
  machine.barriers++;
  for (size_t i = 0; i < (size_t)machine.count; i++) {
    if (machine.threads[i].state != State::at_barrier) continue;
    machine.threads[i].state = State::ready;
    machine.warps[i / kWarp].ready++, machine.warps[i / kWarp].absent--;
  }
}

void thread_entry() {
  running->body(running->arguments);
  const Aside aside;
  Thread& t = machine.threads[(size_t)machine.current];
  Warp& warp = machine.warps[(size_t)(machine.current / kWarp)];
  t.state = State::exited;
  machine.alive--, warp.absent++, warp.ready--;
  bool left = !t.open.empty();
  for (const auto& group : t.groups) left = left || !group.empty();
  if (left) report("a thread ends with cp.async copies that nobody waited for");
  if (warp.arrived > 0) report("divergence: a thread ends while others of its warp wait for it");
  // A barrier counts the threads that are still there.
  if (machine.alive > 0 && machine.at_barrier == machine.alive) open_barrier();
  yield();
  __builtin_trap();
}

std::string describe_waiters() {
  int barrier = 0, warp = 0, first_barrier = -1, first_warp = -1;
  for (int i = 0; i < machine.count; i++) {
    const State state = machine.threads[(size_t)i].state;
    if (state == State::at_barrier && barrier++ == 0) first_barrier = i;
    if (state == State::in_warp && warp++ == 0) first_warp = i;
  }
  std::string text = std::to_string(machine.count - machine.alive) + " threads have ended";
  if (barrier)
    text += ", " + std::to_string(barrier) + " wait in __syncthreads (thread " + std::to_string(first_barrier) + ")";
  if (warp) {
    text += ", " + std::to_string(warp) + " wait for their warp (thread " + std::to_string(first_warp) + ")";
  }
  return text;
}

// Which warp runs next: they take turns, or one runs as far as it can, or chance decides.
int pick_warp(int policy, int last, const std::vector<int>& order, Random& random) {
  const int n = (int)order.size();
  if (policy == 1) {
    for (int w : order)
      if (machine.warps[(size_t)w].ready > 0) return w;
    return -1;
  }
  const int from = policy == 2 ? random.below(n) : last + 1;
  for (int i = 0; i < n; i++) {
    const int w = (from + i) % n;
    if (machine.warps[(size_t)w].ready > 0) return w;
  }
  return -1;
}

void run_block(const Launch& l, Random& random, int policy) {
  const int n = (int)(l.threads.x * l.threads.y * l.threads.z), warps = (n + kWarp - 1) / kWarp;
  machine.count = machine.alive = n;
  machine.at_barrier = 0, machine.barriers = 0, machine.abandoned = false;
  machine.serial++;
  memset(machine.shared, 0xff, l.shared_bytes);  // NaN as any float
  std::vector<int> order((size_t)warps);
  for (int w = 0; w < warps; w++) {
    Warp& warp = machine.warps[(size_t)w];
    warp.arrived = 0, warp.syncs = 0, warp.next = 0;
    warp.ready = std::min(kWarp, n - w * kWarp), warp.absent = kWarp - warp.ready;
    for (int i = 0; i < kWarp; i++) warp.order[i] = i;
    random.shuffle(warp.order, kWarp);
    order[(size_t)w] = w;
  }
  random.shuffle(order.data(), warps);
  for (int i = 0; i < n; i++) {
    Thread& t = machine.threads[(size_t)i];
    t.state = State::ready;
    t.open.clear(), t.groups.clear();
    t.stack_pointer = make_stack(machine.stacks + (size_t)i * kStackBytes, kStackBytes, thread_entry);
  }
  place.threads = l.threads, place.blocks = l.blocks;
  int last = 0;
  while (machine.alive > 0 && !machine.abandoned) {
    const int w = pick_warp(policy, last, order, random);
    if (w < 0) {
      machine.current = 0;
      report("deadlock: " + describe_waiters());
      break;
    }
    last = w;
    Warp& warp = machine.warps[(size_t)w];
    int index = -1;
    for (int i = 0; i < kWarp && index < 0; i++) {
      const int at = w * kWarp + warp.order[(warp.next + i) % kWarp];
      if (at < n && machine.threads[(size_t)at].state == State::ready)
        index = at, warp.next = (warp.next + i + 1) % kWarp;
    }
    machine.current = index;
    place.thread = {(unsigned)index % l.threads.x, (unsigned)index / l.threads.x % l.threads.y,
                    (unsigned)index / l.threads.x / l.threads.y};
    machine.aside = false;
    sfx_emulation_switch(&machine.scheduler_stack, machine.threads[(size_t)index].stack_pointer);
  }
  machine.current = -1;
}

}  // namespace

void yield() { sfx_emulation_switch(&machine.threads[(size_t)machine.current].stack_pointer, machine.scheduler_stack); }
void abandon() {
  machine.abandoned = true;
  if (machine.current >= 0 && machine.alive > 0) yield();
}

namespace {

// Which lane keeps a warp operation from ever being complete.
void report_absent(int first) {
  for (int i = first; i < first + kWarp; i++) {
    const char* why = i >= machine.count                                      ? " does not exist"
                      : machine.threads[(size_t)i].state == State::exited     ? " has ended"
                      : machine.threads[(size_t)i].state == State::at_barrier ? " waits in __syncthreads"
                                                                              : nullptr;
    if (why) report("divergence: a warp operation whose thread " + std::to_string(i) + why);
  }
}

// The last lane to come computes for all.
void rendezvous(Operation op) {
  const int me = machine.current, first = me / kWarp * kWarp;
  Warp& warp = machine.warps[(size_t)(me / kWarp)];
  const Aside aside;
  if (warp.absent > 0) report_absent(first);
  if (warp.arrived > 0 && warp.operation != op)
    report("divergence: threads of one warp call different warp operations");
  warp.operation = op;
  if (++warp.arrived < kWarp) {
    machine.threads[(size_t)me].state = State::in_warp;
    warp.ready--;
    yield();
    return;
  }
  warp.arrived = 0;
  compute(warp, op, first);
  for (int i = first; i < first + kWarp; i++)
    if (i != me) machine.threads[(size_t)i].state = State::ready;
  warp.ready = kWarp;
}

Lane& lane() { return machine.warps[(size_t)(machine.current / kWarp)].lanes[machine.current % kWarp]; }

}  // namespace

uint32_t exchange_bits(Operation op, uint32_t value, int argument) {
  Lane& mine = lane();
  mine.in[0] = value, mine.in[1] = (uint32_t)argument;
  rendezvous(op);
  return mine.out[0];
}
void sync_warp() { rendezvous(kSyncWarp); }
Four multiply_add(Operation op, uint4 a, uint2 b, Four c) {
  Lane& mine = lane();
  memcpy(mine.in, &a, 16), memcpy(mine.in + 4, &b, 8), memcpy(mine.in + 6, &c, 16);
  rendezvous(op);
  memcpy(&c, mine.out, 16);
  return c;
}
uint4 load_matrices(Operation op, const void* row) {
  Lane& mine = lane();
  memcpy(mine.in, &row, sizeof row);
  rendezvous(op);
  uint4 r;
  memcpy(&r, mine.out, 16);
  return r;
}

void block_barrier() {
  const int me = machine.current;
  Warp& warp = machine.warps[(size_t)(me / kWarp)];
  if (warp.arrived > 0) report("divergence: __syncthreads while others of the warp wait in a warp operation");
  machine.threads[(size_t)me].state = State::at_barrier;
  warp.ready--, warp.absent++;
  if (++machine.at_barrier < machine.alive)
    yield();
  else
    open_barrier();
}

void* shared_memory() { return machine.shared; }

void set_seed(uint64_t seed) { base_seed = seed; }

void begin_reports();
bool any_report();

bool run(const Launch& l) {
  const std::lock_guard<std::mutex> lock(one_launch);
  begin_reports();
  machine.kernel = l.kernel;
  const uint64_t threads = (uint64_t)l.threads.x * l.threads.y * l.threads.z;
  const uint64_t blocks = (uint64_t)l.blocks.x * l.blocks.y * l.blocks.z;
  if (threads == 0 || threads > kMaxThreads || blocks == 0 || l.blocks.y > 65535 || l.blocks.z > 65535 ||
      l.shared_bytes > kSharedMost) {
    report("cannot be launched: " + std::to_string(blocks) + " blocks of " + std::to_string(threads) +
           " threads with " + std::to_string(l.shared_bytes) + " bytes of shared memory");
    return false;
  }
  if (!prepare_memory()) {
    report("no memory for the stacks of the emulated threads");
    return false;
  }
  machine.threads.resize(kMaxThreads);
  machine.warps.resize(kMaxThreads / kWarp);
  machine.shared_bytes = l.shared_bytes;
  machine.arguments = static_cast<const unsigned char*>(l.arguments);
  machine.arguments_end = machine.arguments + l.arguments_bytes;
  running = &l;
  if (const char* seed = getenv("SINKFLEX_EMULATION_SEED")) base_seed = strtoull(seed, nullptr, 10);
  Random random = {base_seed * 0x2545f4914f6cdd1dull + 1};
  const int policy = (int)(base_seed % 3);
  std::vector<uint32_t> order(blocks);
  for (uint64_t i = 0; i < blocks; i++) order[i] = (uint32_t)i;
  random.shuffle(order.data(), (int)blocks);
  for (uint32_t b : order) {
    place.block = {b % l.blocks.x, b / l.blocks.x % l.blocks.y, b / l.blocks.x / l.blocks.y};
    run_block(l, random, policy);
    if (machine.abandoned || any_report()) break;
  }
  running = nullptr;
  machine.kernel = "";
  return !any_report();
}

}  // namespace emulation
