// Where compiled kernels announce their loads and stores: the entry points that -fsanitize=thread calls, and what goes
// to memory by other ways (cp.async, atomics). Stacks, arguments and constants of the program pass; everything else is
// shared or device memory, or a mistake.
#if defined(__linux__)
#include <link.h>
#endif

#include "device-memory.h"
#include "machine.h"

namespace emulation {

namespace {

// The program's own constants: the loaded segments of this library.
struct Segments {
  uintptr_t begin = ~(uintptr_t)0, end = 0;
};
Segments own_segments() {
  Segments s;
#if defined(__linux__)
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        Segments* s = static_cast<Segments*>(out);
        Segments here;
        bool mine = false;
        for (int i = 0; i < info->dlpi_phnum; i++) {
          const auto& p = info->dlpi_phdr[i];
          if (p.p_type != PT_LOAD) continue;
          const uintptr_t from = info->dlpi_addr + p.p_vaddr, to = from + p.p_memsz;
          here.begin = from < here.begin ? from : here.begin, here.end = to > here.end ? to : here.end;
          mine = mine || ((uintptr_t)&machine >= from && (uintptr_t)&machine < to);
        }
        if (mine) *s = here;
        return mine ? 1 : 0;
      },
      &s);
#else
  s = {0, ~(uintptr_t)0};  // not told apart here
#endif
  return s;
}

void access(const void* at, size_t bytes, bool write, const void* code, bool aligned) {
  if (machine.current < 0 || machine.aside) return;
  const Aside aside;
  const uintptr_t address = (uintptr_t)at;
  const uintptr_t in_stacks = address - (uintptr_t)machine.stacks;
  if (in_stacks < kMaxThreads * kStackBytes) {
    if (in_stacks / kStackBytes != (uintptr_t)machine.current)
      report(std::string(write ? "writes" : "reads") + " the local memory of another thread", code);
    return;
  }
  if (address >= (uintptr_t)machine.arguments && address < (uintptr_t)machine.arguments_end && !write) return;
  if (aligned && address % bytes)
    report(
        std::string(write ? "writes " : "reads ") + std::to_string(bytes) + " bytes at an address that is no multiple",
        code);
  if (is_shared(at)) return shadow_access(at, bytes, write, false, machine.current, code);
  static const Segments own = own_segments();
  if (!is_device(at) && !write && address >= own.begin && address < own.end) return;
  check_device(at, bytes, write, code);
}

void deliver(const AsyncCopy& copy, int thread) {
  memcpy(copy.to, copy.from, (size_t)copy.bytes);
  memset(copy.to + copy.bytes, 0, (size_t)copy.zeros);
  shadow_deliver(copy.to, (size_t)(copy.bytes + copy.zeros), thread);
}

}  // namespace

void copy_async(void* shared, const void* global, int bytes, int zeros) {
  const Aside aside;
  const void* code = __builtin_return_address(0);
  if (!is_shared(shared)) {
    report("cp.async to outside of shared memory", code);
    return abandon();
  }
  if ((uintptr_t)shared % 16 || (bytes > 0 && (uintptr_t)global % 16))
    report("cp.async with an address that is no multiple of 16 bytes", code);
  if (bytes > 0) check_device(global, (size_t)bytes, false, code);
  shadow_in_flight(shared, (size_t)(bytes + zeros), machine.current, code);
  memset(shared, 0xff, (size_t)(bytes + zeros));
  machine.threads[(size_t)machine.current].open.push_back({static_cast<unsigned char*>(shared), global, bytes, zeros});
}
void copy_async_commit() {
  const Aside aside;
  Thread& t = machine.threads[(size_t)machine.current];
  t.groups.push_back(std::move(t.open));
  t.open.clear();
}
void copy_async_wait(int groups_left) {
  const Aside aside;
  Thread& t = machine.threads[(size_t)machine.current];
  while ((int)t.groups.size() > groups_left) {
    for (const AsyncCopy& copy : t.groups.front()) deliver(copy, machine.current);
    t.groups.erase(t.groups.begin());
  }
}

template <class T, class F>
static T atomic(T* to, const F& next, const void* code) {
  const Aside aside;
  if (is_shared(to)) {
    shadow_access(to, sizeof(T), true, true, machine.current, code);
  } else {
    check_device(to, sizeof(T), false, code);
    check_device(to, sizeof(T), true, code);
  }
  const T old = *to;
  *to = next(old);
  return old;
}
float atomic_add(float* to, float value) {
  return atomic(to, [&](float x) { return x + value; }, __builtin_return_address(0));
}
int32_t atomic_add(int32_t* to, int32_t value) {
  return atomic(to, [&](int32_t x) { return x + value; }, __builtin_return_address(0));
}
uint32_t atomic_add(uint32_t* to, uint32_t value) {
  return atomic(to, [&](uint32_t x) { return x + value; }, __builtin_return_address(0));
}

}  // namespace emulation

#define SFX_HOOK(name, bytes, write, aligned) \
  extern "C" void name(void* at);             \
  extern "C" void name(void* at) { emulation::access(at, bytes, write, __builtin_return_address(0), aligned); }
SFX_HOOK(__tsan_read1, 1, false, true)
SFX_HOOK(__tsan_read2, 2, false, true)
SFX_HOOK(__tsan_read4, 4, false, true)
SFX_HOOK(__tsan_read8, 8, false, true)
SFX_HOOK(__tsan_read16, 16, false, true)
SFX_HOOK(__tsan_write1, 1, true, true)
SFX_HOOK(__tsan_write2, 2, true, true)
SFX_HOOK(__tsan_write4, 4, true, true)
SFX_HOOK(__tsan_write8, 8, true, true)
SFX_HOOK(__tsan_write16, 16, true, true)
SFX_HOOK(__tsan_unaligned_read2, 2, false, false)
SFX_HOOK(__tsan_unaligned_read4, 4, false, false)
SFX_HOOK(__tsan_unaligned_read8, 8, false, false)
SFX_HOOK(__tsan_unaligned_read16, 16, false, false)
SFX_HOOK(__tsan_unaligned_write2, 2, true, false)
SFX_HOOK(__tsan_unaligned_write4, 4, true, false)
SFX_HOOK(__tsan_unaligned_write8, 8, true, false)
SFX_HOOK(__tsan_unaligned_write16, 16, true, false)

extern "C" {
void __tsan_init();
void __tsan_func_entry(void*);
void __tsan_func_exit();
void __tsan_vptr_update(void**, void*);
void __tsan_vptr_read(void**);
void __tsan_read_range(void* at, size_t bytes);
void __tsan_write_range(void* at, size_t bytes);
void* __tsan_memcpy(void* to, const void* from, size_t bytes);
void* __tsan_memset(void* to, int value, size_t bytes);
// The guards of function-local constants.
char __tsan_atomic8_load(const volatile char* at, int);
char __tsan_atomic8_load(const volatile char* at, int) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_read_range(void* at, size_t bytes) {
  emulation::access(at, bytes, false, __builtin_return_address(0), false);
}
void __tsan_write_range(void* at, size_t bytes) {
  emulation::access(at, bytes, true, __builtin_return_address(0), false);
}
void* __tsan_memcpy(void* to, const void* from, size_t bytes) {
  emulation::access(from, bytes, false, __builtin_return_address(0), false);
  emulation::access(to, bytes, true, __builtin_return_address(0), false);
  return __builtin_memcpy(to, from, bytes);
}
void* __tsan_memset(void* to, int value, size_t bytes) {
  emulation::access(to, bytes, true, __builtin_return_address(0), false);
  return __builtin_memset(to, value, bytes);
}
}
