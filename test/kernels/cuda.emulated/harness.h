// What the emulated tests stand on: checks that count and speak TAP, seeded numbers, device buffers.
#ifndef SINKFLEX_TEST_EMULATED_HARNESS_H
#define SINKFLEX_TEST_EMULATED_HARNESS_H

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <string>
#include <vector>

#include "../../../kernels/cuda/device.h"
#include "../ops.native/arrays.h"

inline int checks = 0, failures = 0;

inline bool check(bool good, const std::string& what) {
  checks++;
  if (!good) failures++;
  printf("%s %d - %s\n", good ? "ok" : "not ok", checks, what.c_str());
  return good;
}
inline int finish() {
  printf("1..%d\n", checks);
  return failures ? 1 : 0;
}

// An array on the device; never written unless it was made from values.
template <class T>
class Device {
 public:
  explicit Device(int64_t count)
      : count_(count), at_(static_cast<T*>(sfx::cuda::allocate(count * (int64_t)sizeof(T)))) {}
  explicit Device(const Array<T>& values) : Device((int64_t)values.size()) {
    sfx::cuda::copy(nullptr, at_, values.data(), count_ * (int64_t)sizeof(T));
  }
  ~Device() { sfx::cuda::release(at_); }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  T* get() const { return at_; }
  Array<T> values() const {
    Array<T> v((size_t)count_);
    sfx::cuda::copy(nullptr, v.data(), at_, count_ * (int64_t)sizeof(T));
    return v;
  }

 private:
  int64_t count_;
  T* at_;
};

inline float bf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  bits = (bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u;
  memcpy(&x, &bits, 4);
  return x;
}

#endif
