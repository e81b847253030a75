// The floating-point state of every native task: round to nearest, subnormals kept, no traps, whatever the host process has set.
#ifndef SINKFLEX_OPS_FLOAT_STATE_H
#define SINKFLEX_OPS_FLOAT_STATE_H

#include <stdint.h>

namespace sfx {

class FloatState {
 public:
  FloatState() : saved_(read()) { write(kDefault); }
  ~FloatState() { write(saved_); }
  FloatState(const FloatState &) = delete;
  FloatState &operator=(const FloatState &) = delete;

 private:
#if defined(__x86_64__)
  using Word = uint32_t;
  static constexpr Word kDefault = 0x1f80;
  static Word read() { return __builtin_ia32_stmxcsr(); }
  static void write(Word w) { __builtin_ia32_ldmxcsr(w); }
#elif defined(__aarch64__)
  using Word = uint64_t;
  static constexpr Word kDefault = 0;
  static Word read() {
    Word w;
    asm volatile("mrs %0, fpcr" : "=r"(w));
    return w;
  }
  static void write(Word w) { asm volatile("msr fpcr, %0" : : "r"(w)); }
#else
  using Word = int;
  static constexpr Word kDefault = 0;
  static Word read() { return 0; }
  static void write(Word) {}
#endif
  Word saved_;
};

}  // namespace sfx
#endif
