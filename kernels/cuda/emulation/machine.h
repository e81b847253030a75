// The state of the emulated machine: one block at a time, its warps, its threads as fibers. Launches of a process
// follow each other (launch holds a lock), so that all of it is plain data.
#ifndef SINKFLEX_CUDA_EMULATION_MACHINE_H
#define SINKFLEX_CUDA_EMULATION_MACHINE_H

#include <string>
#include <vector>

#include "cuda.h"

namespace emulation {

constexpr int kWarp = 32;
constexpr int kMaxThreads = 1024;
constexpr size_t kStackBytes = 128 << 10;
constexpr size_t kGuardBytes = 16 << 10;   // at the bottom of each stack; whole pages everywhere
constexpr size_t kSharedMost = 227 << 10;  // what a block of sm_90 may have

struct AsyncCopy {
  unsigned char* to;
  const void* from;
  int bytes, zeros;
};

enum class State : uint8_t { ready, at_barrier, in_warp, exited };

struct Thread {
  void* stack_pointer = nullptr;
  State state = State::exited;
  std::vector<AsyncCopy> open;                 // not committed yet
  std::vector<std::vector<AsyncCopy>> groups;  // committed, oldest first
};

struct Lane {
  uint32_t in[12];
  uint32_t out[4];
};

struct Warp {
  Lane lanes[kWarp];
  int arrived = 0, ready = 0;
  int absent = 0;  // lanes that have ended, wait in __syncthreads or do not exist
  Operation operation = kSyncWarp;
  uint32_t syncs = 0;  // of the warp so far: orders memory inside it
  int order[kWarp];    // in which its lanes run
  int next = 0;
};

struct Machine {
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  int count = 0, alive = 0, at_barrier = 0;
  int current = -1;     // the running thread, -1 outside kernels
  uint32_t serial = 0;  // of the block, over all launches: shadow cells of other blocks count as never written
  uint32_t barriers = 0;
  bool abandoned = false;
  bool aside = false;  // the machine's own code runs: its accesses are nobody's
  const char* kernel = "";
  void* scheduler_stack = nullptr;
  unsigned char* shared = nullptr;  // kSharedMost bytes
  size_t shared_bytes = 0;
  unsigned char* stacks = nullptr;  // kMaxThreads of kStackBytes
  // The launch's arguments: the host's memory, but a kernel's constants.
  const unsigned char *arguments = nullptr, *arguments_end = nullptr;
};
extern Machine machine;

// For the time of a function of the machine that uses the standard library: the linker may have kept the watched copy
// of an inline function that kernels use too.
class Aside {
 public:
  Aside() : before_(machine.aside) { machine.aside = true; }
  ~Aside() { machine.aside = before_; }
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;

 private:
  bool before_;
};

// Switches stacks: saves the callee's registers and its stack pointer to *save, goes on where `load` was saved.
extern "C" void sfx_emulation_switch(void** save, void* load);
// A stack that begins in `entry`, which never returns.
void* make_stack(unsigned char* bottom, size_t bytes, void (*entry)());

void yield();
// Leaves the block for good: its fibers are never resumed.
void abandon();

// What is wrong with the kernel, said once for each kind of text; abandons the block after some.
void report(const std::string& what, const void* code = nullptr);
std::string where(int thread);

// shared-shadow.cpp
void shadow_access(const void* at, size_t bytes, bool write, bool atomic, int thread, const void* code);
void shadow_in_flight(const void* at, size_t bytes, int thread, const void* code);
void shadow_deliver(const void* at, size_t bytes, int thread);
inline bool is_shared(const void* at) {
  return (uintptr_t)at - (uintptr_t)machine.shared < kSharedMost + 4096;  // and a little beyond its end
}

// device-memory.cpp
void check_device(const void* at, size_t bytes, bool write, const void* code);

// warp.cpp
void compute(Warp&, Operation, int first_thread);

}  // namespace emulation
#endif
