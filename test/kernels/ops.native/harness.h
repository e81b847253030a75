// What the native operator tests stand on: checks that count, and `everywhere`, which runs an operator in every place
// (on the CPU: each instruction set of this machine, with several thread counts) and insists on the same bits.
#ifndef SINKFLEX_TEST_HARNESS_H
#define SINKFLEX_TEST_HARNESS_H

#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "../../../kernels/backend.h"
#include "arrays.h"

using Doubles = std::vector<double>;

inline int checks = 0, failures = 0;
inline std::string current;

inline bool check(bool ok, const std::string& what) {
  checks++;
  if (!ok && ++failures <= 40) std::printf("FAILED %s: %s\n", current.c_str(), what.c_str());
  return ok;
}
inline void section(const std::string& name) { current = name; }

inline Floats poison(int64_t n) { return Floats((size_t)n, std::numeric_limits<float>::quiet_NaN()); }

inline sfx_tensor tensor(const Floats& f, std::initializer_list<int64_t> shape) {
  sfx_tensor t{};
  t.data = const_cast<float*>(f.data());
  t.dtype = SFX_F32;
  t.rank = (int32_t)shape.size();
  int i = 0;
  for (int64_t s : shape) t.shape[i++] = s;
  for (; i < 4; i++) t.shape[i] = 1;
  int64_t stride = 1;
  for (int d = t.rank - 1; d >= 0; d--) t.stride[d] = stride, stride *= t.shape[d];
  return t;
}

struct Place {
  const sfx_backend* backend;
  int32_t threads;
};
// Of what is tested: main.cpp has the CPU's, cuda.emulated/operators.cu the emulated device.
std::vector<Place> places();
// Whether packed and paged attention give the same bits.
inline bool paged_is_packed = true;
// How often a distribution is drawn from: an emulated device is slow.
inline int64_t draws = 20000;

inline bool same_bits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}
inline std::string first_difference(const Floats& a, const Floats& b) {
  for (size_t i = 0; i < a.size() && i < b.size(); i++)
    if (std::memcmp(&a[i], &b[i], 4) != 0) {
      char text[128];
      std::snprintf(text, sizeof text, "[%zu] %.9g != %.9g", i, a[i], b[i]);
      return text;
    }
  return "sizes differ";
}

using Body = std::function<Floats(const sfx_backend&, sfx_stream*)>;
// Runs body in every place; the results must agree bit for bit. Returns them.
inline Floats everywhere(const Body& body) {
  Floats first;
  bool have = false;
  for (const Place& p : places()) {
    sfx_stream* s = p.backend->stream_create(p.threads);
    const Floats out = body(*p.backend, s);
    const Floats again = body(*p.backend, s);
    p.backend->stream_destroy(s);
    check(same_bits(out, again), std::string(p.backend->name) + ": two runs differ " + first_difference(out, again));
    if (!have) first = out, have = true;
    check(same_bits(first, out), std::string(p.backend->name) + ", " + std::to_string(p.threads) +
                                     " threads, differs: " + first_difference(first, out));
  }
  return first;
}
inline void ok(int32_t status, const sfx_backend& b) {
  check(status == SFX_OK, std::string("status: ") + b.last_error());
}

// norm(a - b) / norm(b)
inline double distance(const float* a, const double* b, size_t n) {
  double d = 0, w = 0;
  for (size_t i = 0; i < n; i++) {
    if (!std::isfinite(a[i])) return 1e30;
    d += (a[i] - b[i]) * (a[i] - b[i]), w += b[i] * b[i];
  }
  return std::sqrt(d) / (std::sqrt(w) + 1e-12);
}
inline void close(const Floats& a, size_t from, const Doubles& b, double tolerance, const std::string& what) {
  const double d = from + b.size() <= a.size() ? distance(a.data() + from, b.data(), b.size()) : 1e30;
  char text[160];
  std::snprintf(text, sizeof text, "%s: relative error %.3g > %.3g", what.c_str(), d, tolerance);
  check(d <= tolerance, text);
}

inline bool same_attention(const float* a, const float* b, size_t count) {
  if (paged_is_packed) return std::memcmp(a, b, count * sizeof(float)) == 0;
  return distance(a, Doubles(b, b + count).data(), count) <= 1e-5;
}

inline Doubles doubles(const Floats& f) { return Doubles(f.begin(), f.end()); }

// d loss / d x by central differences in float64, for a sample of the entries; compared with `analytic` (float32).
inline void differences(Doubles& x, const std::function<double()>& loss, const float* analytic, double tolerance,
                        const std::string& what, size_t sample = 24) {
  Random r(99);
  double error = 0, size = 0;
  const size_t count = std::min(sample, x.size());
  for (size_t i = 0; i < count; i++) {
    const size_t at = count == x.size() ? i : (size_t)r.below((int64_t)x.size());
    const double keep = x[at], step = 1e-5 * (1 + std::fabs(keep));
    x[at] = keep + step;
    const double up = loss();
    x[at] = keep - step;
    const double down = loss();
    x[at] = keep;
    const double g = (up - down) / (2 * step);
    error += (g - analytic[at]) * (g - analytic[at]), size += g * g;
  }
  error = std::sqrt(error), size = std::sqrt(size);
  char text[160];
  std::snprintf(text, sizeof text, "%s: finite differences %.3g of %.3g", what.c_str(), error, size);
  check(error <= tolerance * (size + 1e-3 * std::sqrt((double)count)), text);
}

inline Floats joined(std::initializer_list<const Floats*> parts) {
  Floats all;
  for (const Floats* p : parts) all.insert(all.end(), p->begin(), p->end());
  return all;
}

void test_elementary();
void test_linear();
void test_elementwise();
void test_attention();
void test_attention_variants();
void test_moe();
void test_vocabulary();
int bench(int argc, char** argv);

#endif
