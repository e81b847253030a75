// Switching stacks: x86-64 and arm64 by hand (a few nanoseconds), ucontext elsewhere.
#include "machine.h"

#if defined(__APPLE__)
#define SFX_SYMBOL "_sfx_emulation_switch"
#else
#define SFX_SYMBOL "sfx_emulation_switch"
#endif

#if defined(__x86_64__)

__asm__(".text\n.globl " SFX_SYMBOL "\n" SFX_SYMBOL
        ":\n"
        "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
        "  movq %rsp, (%rdi)\n  movq %rsi, %rsp\n"
        "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n  ret\n");

namespace emulation {
void* make_stack(unsigned char* bottom, size_t bytes, void (*entry)()) {
  void** top = reinterpret_cast<void**>(((uintptr_t)bottom + bytes) & ~(uintptr_t)15);
  *--top = nullptr;  // what a caller would have pushed, so that the entry finds its stack aligned
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; i++) *--top = nullptr;
  return top;
}
}  // namespace emulation

#elif defined(__aarch64__)

__asm__(".text\n.globl " SFX_SYMBOL "\n.p2align 2\n" SFX_SYMBOL
        ":\n"
        "  sub sp, sp, #160\n"
        "  stp x19, x20, [sp, #0]\n  stp x21, x22, [sp, #16]\n  stp x23, x24, [sp, #32]\n"
        "  stp x25, x26, [sp, #48]\n  stp x27, x28, [sp, #64]\n  stp x29, x30, [sp, #80]\n"
        "  stp d8, d9, [sp, #96]\n  stp d10, d11, [sp, #112]\n  stp d12, d13, [sp, #128]\n  stp d14, d15, [sp, #144]\n"
        "  mov x9, sp\n  str x9, [x0]\n  mov sp, x1\n"
        "  ldp x19, x20, [sp, #0]\n  ldp x21, x22, [sp, #16]\n  ldp x23, x24, [sp, #32]\n"
        "  ldp x25, x26, [sp, #48]\n  ldp x27, x28, [sp, #64]\n  ldp x29, x30, [sp, #80]\n"
        "  ldp d8, d9, [sp, #96]\n  ldp d10, d11, [sp, #112]\n  ldp d12, d13, [sp, #128]\n  ldp d14, d15, [sp, #144]\n"
        "  add sp, sp, #160\n  ret\n");

namespace emulation {
void* make_stack(unsigned char* bottom, size_t bytes, void (*entry)()) {
  void** top = reinterpret_cast<void**>(((uintptr_t)bottom + bytes) & ~(uintptr_t)15) - 20;
  for (int i = 0; i < 20; i++) top[i] = nullptr;
  top[11] = reinterpret_cast<void*>(entry);  // x30
  return top;
}
}  // namespace emulation

#else
#include <ucontext.h>

#include <deque>

// A saved "stack pointer" is the address of a context.
extern "C" void sfx_emulation_switch(void** save, void* load) {
  ucontext_t here;
  *save = &here;
  swapcontext(&here, static_cast<ucontext_t*>(load));
}

namespace emulation {
void* make_stack(unsigned char* bottom, size_t bytes, void (*entry)()) {
  auto* context = reinterpret_cast<ucontext_t*>(bottom + kGuardBytes);
  getcontext(context);
  context->uc_stack.ss_sp = context + 1;
  context->uc_stack.ss_size = bytes - kGuardBytes - sizeof(ucontext_t);
  context->uc_link = nullptr;
  makecontext(context, entry, 0);
  return context;
}
}  // namespace emulation
#endif
