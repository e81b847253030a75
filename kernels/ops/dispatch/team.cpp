// The thread team and the scratch arena of a stream. Helpers spin for some tens of microseconds after a job, since
// operators come in quick succession, and then sleep on the generation word. A helper that wakes too late simply finds
// the job closed: nobody waits for sleepers.
#include "../team.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <new>
#include <thread>
#include <vector>

namespace {

constexpr int64_t kAlign = 64, kHugePage = 2 << 20;
constexpr auto kSpin = std::chrono::microseconds(30);

inline void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

thread_local char error_text[256] = "";

}  // namespace

struct sfx_stream {
  std::vector<std::thread> helpers;
  alignas(64) std::atomic<uint32_t> generation{0};
  alignas(64) std::atomic<int32_t> inside{0};
  std::atomic<int32_t> sleeping{0};
  std::atomic<bool> open{false};
  std::atomic<bool> stopping{false};
  alignas(64) std::atomic<int64_t> next{0};
  int64_t count = 0;
  sfx::Task task = nullptr;
  void* context = nullptr;

  char* base = nullptr;
  int64_t capacity = 0, used = 0, wanted = 0, overflowed = 0, peak = 0;
  std::vector<void*>
      overflow;  // chunks taken while the base was too small; folded into the base when the arena is empty

  void work(int32_t thread) {
    for (int64_t i = next.fetch_add(1, std::memory_order_relaxed); i < count;
         i = next.fetch_add(1, std::memory_order_relaxed))
      task(context, i, thread);
  }

  void help(int32_t thread) {
    sfx::float_state_enter();
    uint32_t seen = 0;
    for (;;) {
      const auto until = std::chrono::steady_clock::now() + kSpin;
      uint32_t now;
      while ((now = generation.load()) == seen) {
        for (int i = 0; i < 32 && generation.load(std::memory_order_relaxed) == seen; i++) pause_briefly();
        if (generation.load() == seen && std::chrono::steady_clock::now() > until) {
          sleeping++;
          generation.wait(seen);
          sleeping--;
        }
      }
      seen = now;
      if (stopping.load()) return;
      inside++;
      if (open.load()) work(thread);
      inside--;
    }
  }

  void announce() {
    generation++;
    if (sleeping.load() > 0) generation.notify_all();
  }
};

namespace sfx {

int32_t team_size(const sfx_stream* s) { return (int32_t)s->helpers.size() + 1; }

void team_run(sfx_stream* s, int64_t count, Task task, void* context) {
  if (count <= 1 || s->helpers.empty()) {
    for (int64_t i = 0; i < count; i++) task(context, i, 0);
    return;
  }
  s->task = task;
  s->context = context;
  s->count = count;
  s->next.store(0);
  s->open.store(true);
  s->announce();
  s->work(0);
  s->open.store(false);
  for (int spins = 0; s->inside.load() != 0; spins++)
    if (spins < 4000)
      pause_briefly();
    else
      std::this_thread::yield();
}

int64_t arena_enter(sfx_stream* s) { return s->used; }

void arena_leave(sfx_stream* s, int64_t mark) {
  s->used = mark;
  if (mark != 0 || s->overflow.empty()) return;
  for (void* chunk : s->overflow) release(chunk);
  s->overflow.clear();
  s->overflowed = 0;
  release(s->base);
  s->base = static_cast<char*>(allocate(s->wanted));
  s->capacity = s->base ? s->wanted : 0;
  if (s->capacity > s->peak) s->peak = s->capacity;
}

bool arena_reserve(sfx_stream* s, int64_t bytes) {
  if (bytes <= s->capacity || s->used > 0) return true;
  release(s->base);
  s->base = static_cast<char*>(allocate(bytes));
  s->capacity = s->base ? bytes : 0;
  if (s->wanted < s->capacity) s->wanted = s->capacity;
  if (s->capacity > s->peak) s->peak = s->capacity;
  return s->base != nullptr;
}

int64_t arena_peak(const sfx_stream* s) { return s->peak; }

void* arena_take(sfx_stream* s, int64_t bytes) {
  bytes = (bytes + kAlign - 1) / kAlign * kAlign + kAlign;
  char* p;
  if (s->used + bytes <= s->capacity) {
    p = s->base + s->used;
  } else {
    p = static_cast<char*>(allocate(bytes));
    if (!p) throw std::bad_alloc();  // the operator table turns it into SFX_OUT_OF_MEMORY
    s->overflow.push_back(p);
    s->overflowed += bytes;
    if (s->capacity + s->overflowed > s->peak) s->peak = s->capacity + s->overflowed;
  }
  s->used += bytes;
  if (s->used > s->wanted) s->wanted = s->used + s->used / 8;
#if defined(SFX_POISON) || defined(__SANITIZE_ADDRESS__)
  memset(p, 0xff, (size_t)bytes);
#endif
  return p;
}

uint64_t float_state_enter() {
#if defined(__x86_64__)
  const uint64_t saved = __builtin_ia32_stmxcsr();
  if (saved != 0x1f80) __builtin_ia32_ldmxcsr(0x1f80);
  return saved;
#elif defined(__aarch64__)
  uint64_t saved;
  asm volatile("mrs %0, fpcr" : "=r"(saved));
  asm volatile("msr fpcr, %0" : : "r"((uint64_t)0));
  return saved;
#else
  return 0;
#endif
}

void float_state_leave([[maybe_unused]] uint64_t saved) {
#if defined(__x86_64__)
  __builtin_ia32_ldmxcsr((uint32_t)saved);
#elif defined(__aarch64__)
  asm volatile("msr fpcr, %0" : : "r"(saved));
#endif
}

int32_t fail(int32_t status, const char* message) {
  strncpy(error_text, message, sizeof error_text - 1);
  return status;
}

const char* last_error() { return error_text; }

void* allocate(int64_t bytes) {
  void* p = nullptr;
  const size_t size = (size_t)((bytes < 1 ? 1 : bytes) + kAlign - 1) / kAlign * kAlign;
  const bool large = size >= 8 * (size_t)kHugePage;
  if (posix_memalign(&p, (size_t)(large ? kHugePage : kAlign), size) != 0) return nullptr;
#if defined(MADV_HUGEPAGE)
  // A walk of the page tables costs some hundred cycles on a virtual machine. Only a wish: what it answers is the same.
  if (large) madvise(p, size / (size_t)kHugePage * (size_t)kHugePage, MADV_HUGEPAGE);
#endif
  return p;
}

void release(void* p) { free(p); }

sfx_stream* stream_create(int32_t threads) {
  auto* s = new (std::nothrow) sfx_stream;
  if (!s) return nullptr;
  try {
    for (int32_t i = 1; i < threads; i++) s->helpers.emplace_back([s, i] { s->help(i); });
  } catch (const std::exception& e) {
    fail(SFX_OUT_OF_MEMORY, e.what());
    stream_destroy(s);
    return nullptr;
  }
  return s;
}

void stream_destroy(sfx_stream* s) {
  if (!s) return;
  s->stopping.store(true);
  s->generation++;
  s->generation.notify_all();
  for (auto& helper : s->helpers) helper.join();
  for (void* chunk : s->overflow) release(chunk);
  release(s->base);
  delete s;
}

}  // namespace sfx
