// Arrays and seeded numbers for native tests. An array lies where the backend under test reads and writes: memory of an
// emulated device is the host's too.
#ifndef SINKFLEX_TEST_ARRAYS_H
#define SINKFLEX_TEST_ARRAYS_H

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <vector>

struct TestMemory {
  void* (*allocate)(size_t bytes);
  void (*release)(void*);
};
inline TestMemory test_memory = {std::malloc, std::free};

template <class T>
struct InTestMemory {
  using value_type = T;
  InTestMemory() = default;
  template <class U>
  InTestMemory(const InTestMemory<U>&) {}
  T* allocate(size_t count) { return static_cast<T*>(test_memory.allocate(count * sizeof(T))); }
  void deallocate(T* at, size_t) { test_memory.release(at); }
  bool operator==(const InTestMemory&) const { return true; }
};
template <class T>
using Array = std::vector<T, InTestMemory<T>>;
using Floats = Array<float>;
using Ints = Array<int32_t>;

struct Random {
  uint64_t state;
  explicit Random(uint64_t seed) : state(seed) {}
  uint64_t next() {
    uint64_t z = (state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  double uniform() { return (double)(next() >> 11) * 0x1p-53; }
  double normal() { return std::sqrt(-2 * std::log(1 - uniform())) * std::cos(6.283185307179586 * uniform()); }
  int64_t below(int64_t n) { return (int64_t)(next() % (uint64_t)n); }
  Floats normals(int64_t n, double scale = 1) {
    Floats f((size_t)n);
    for (auto& x : f) x = (float)(scale * normal());
    return f;
  }
};

#endif
