// Matrix products of every layout and kind, held against sums in float64: our own kernels (those of bf16 by bf16 run on
// the tensor cores' instructions), or with a stand-in for libcublasLt as argument what is given to it.
#include <dlfcn.h>
#include <stdlib.h>

#include "../../../kernels/cuda/cublaslt.h"
#include "harness.h"

using namespace sfx;
using namespace sfx::cuda;

namespace {

sfx_stream* stream;
Random random_numbers(11);

// A matrix with its rows or its columns one after another, a little further apart than they must be.
struct Input {
  Array<float> values;  // [rows][columns], as the device has them
  Matrix matrix;
  Device<float> floats;
  Device<uint16_t> halves;

  Input(int64_t rows, int64_t columns, bool transposed, bool half, int64_t gap, int64_t groups = 1)
      : Input(random_numbers.normals(groups * rows * columns), rows, columns, transposed, half, gap, groups) {}

 private:
  Input(Array<float> x, int64_t rows, int64_t columns, bool transposed, bool half, int64_t gap, int64_t groups)
      : values(half ? rounded(x) : x),
        matrix{nullptr, transposed ? 1 : columns + gap, transposed ? rows + gap : 1, half ? SFX_BF16 : SFX_F32,
               nullptr},
        floats(half ? Array<float>(1) : laid_out<float>(rows, columns, transposed, gap, groups)),
        halves(half ? laid_out<uint16_t>(rows, columns, transposed, gap, groups) : Array<uint16_t>(1)) {
    matrix.data = half ? (const void*)halves.get() : floats.get();
  }
  static Array<float> rounded(Array<float> x) {
    for (float& f : x) f = bf16(f);
    return x;
  }
  static void put(float x, float* to) { *to = x; }
  static void put(float x, uint16_t* to) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    *to = (uint16_t)(bits >> 16);
  }
  template <class T>
  Array<T> laid_out(int64_t rows, int64_t columns, bool transposed, int64_t gap, int64_t groups) const {
    const int64_t size = transposed ? columns * (rows + gap) : rows * (columns + gap);
    Array<T> to((size_t)(groups * size));
    for (int64_t g = 0; g < groups; g++)
      for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
          put(values[(size_t)((g * rows + i) * columns + j)],
              &to[(size_t)(g * size + (transposed ? j * (rows + gap) + i : i * (columns + gap) + j))]);
    return to;
  }
};

struct Case {
  int64_t m, n, k;
  bool a_transposed, b_transposed, half_a, half_b, chain, add, bias;
  int64_t gap;
};

void product(const Case& c, int* by_library, int (*calls)()) {
  const Input a(c.m, c.k, c.a_transposed, c.half_a, c.gap), b(c.k, c.n, c.b_transposed, c.half_b, c.gap);
  const Array<float> before = random_numbers.normals(c.m * (c.n + c.gap)), bias = random_numbers.normals(c.n);
  const Device<float> out(before), biases(bias);
  const int calls_before = calls ? calls() : 0;
  const int32_t status = multiply(stream, {c.m, c.n, c.k, a.matrix, b.matrix, out.get(), c.n + c.gap, 1, c.chain, c.add,
                                           c.bias ? biases.get() : nullptr});
  if (calls) *by_library += calls() - calls_before;
  const Array<float> after = out.values();
  double worst = 0, scale = sqrt((double)c.k) + 1;
  bool others = true;
  for (int64_t i = 0; i < c.m; i++)
    for (int64_t j = 0; j < c.n + c.gap; j++) {
      const size_t at = (size_t)(i * (c.n + c.gap) + j);
      if (j >= c.n) {
        others = others && memcmp(&after[at], &before[at], 4) == 0;
        continue;
      }
      double sum = (c.chain || c.add ? before[at] : 0) + (c.bias ? bias[(size_t)j] : 0);
      for (int64_t l = 0; l < c.k; l++)
        sum += (double)a.values[(size_t)(i * c.k + l)] * b.values[(size_t)(l * c.n + j)];
      const double error = fabs(after[at] - sum);
      if (!(error <= worst)) worst = error;
    }
  char text[200];
  snprintf(text, sizeof text, "%lld x %lld x %lld%s%s%s%s%s%s%s gap %lld: %.2g %s", (long long)c.m, (long long)c.n,
           (long long)c.k, c.a_transposed ? " a^T" : "", c.b_transposed ? " b^T" : "", c.half_a ? " bf16" : "",
           c.half_b ? " by bf16" : "", c.chain ? " chain" : "", c.add ? " add" : "", c.bias ? " bias" : "",
           (long long)c.gap, worst, status ? last_error() : "");
  check(status == SFX_OK && worst <= 2e-6 * scale && others, text);
}

// Rows in groups, each with a matrix of its own; or k in groups, each with an output of its own.
void grouped(bool inner, bool half) {
  const Ints first = {0, 5, 5, 80, 97};
  const int64_t groups = 4, all = 97, n = 70, other = 45;
  const Device<int32_t> firsts(first);
  // Values of the whole, and where group g has its part.
  const Input a(inner ? other : all, inner ? all : other, inner, half, 0);
  const Input b(inner ? all : other, n, false, half, 0, inner ? 1 : groups);
  const int64_t rows = inner ? groups * other : all;
  const Array<float> before = random_numbers.normals(rows * n);
  const Device<float> out(before);
  const Product p = {
      inner ? other : all, n, inner ? all : other, a.matrix, b.matrix, out.get(), n, 1, inner, false, nullptr};
  const Groups g = {firsts.get(), groups, inner ? 0 : other * n, 0, inner ? other * n : 0};
  const int32_t status = inner ? multiply_inner(stream, p, g) : multiply_rows(stream, p, g);
  const Array<float> after = out.values();
  double worst = 0;
  for (int64_t at = 0; at < rows; at++)
    for (int64_t j = 0; j < n; j++) {
      int64_t group = inner ? at / other : 0;
      while (!inner && first[(size_t)group + 1] <= at) group++;
      double sum = inner ? before[(size_t)(at * n + j)] : 0;
      for (int64_t l = inner ? first[(size_t)group] : 0; l < (inner ? first[(size_t)group + 1] : other); l++)
        sum += inner ? (double)a.values[(size_t)(at % other * all + l)] * b.values[(size_t)(l * n + j)]
                     : (double)a.values[(size_t)(at * other + l)] * b.values[(size_t)((group * other + l) * n + j)];
      const double error = fabs(after[(size_t)(at * n + j)] - sum);
      if (!(error <= worst)) worst = error;
    }
  char text[120];
  snprintf(text, sizeof text, "groups of %s%s: %.2g %s", inner ? "k" : "rows", half ? " bf16" : "", worst,
           status ? last_error() : "");
  check(status == SFX_OK && worst <= 2e-5, text);
}

}  // namespace

int main(int argc, char** argv) {
  void* const library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : nullptr;
  if (argc > 1) setenv("SINKFLEX_CUBLASLT", argv[1], 1);
  const auto calls = library ? (int (*)())dlsym(library, "stand_in_calls") : nullptr;
  const auto wrong = library ? (int (*)())dlsym(library, "stand_in_wrong") : nullptr;
  const auto kept = library ? (int (*)())dlsym(library, "stand_in_kept") : nullptr;
  const bool refused = getenv("STAND_IN_VERSION") != nullptr;
  device_open(0);
  stream = stream_create(1);
  printf("# %s\n", products_by());
  if (refused) check(strstr(products_by(), "is not of versions 11 to 13"), "a library of another version is not used");
  int by_library = 0, meant = 0;
  const int64_t shapes[][3] = {{1, 70, 33}, {17, 1, 40}, {16, 64, 32}, {65, 67, 31}, {130, 72, 100}, {3, 5, 1}};
  for (const auto& shape : shapes)
    for (int kind = 0; kind < 12; kind++) {
      const bool half_b = kind % 3 > 0, half_a = kind % 3 > 1;
      const Case c = {shape[0],
                      shape[1],
                      shape[2],
                      kind / 3 % 2 == 1,
                      kind / 6 == 1,
                      half_a,
                      half_b,
                      kind % 4 == 1,
                      kind % 4 == 2,
                      kind % 2 == 0 && kind % 4 != 1,
                      kind % 5 == 0 ? 0 : kind};
      product(c, &by_library, calls);
      // The stand-in takes no single column of its own D, a row of ours.
      meant += half_a == half_b && c.m > 1;
    }
  if (library && !refused) {
    check(by_library == meant, "cuBLASLt computed " + std::to_string(by_library) + " of " + std::to_string(meant));
    const Device<float> left(random_numbers.normals(1200 * 4)), right(random_numbers.normals(4 * 8)),
        out(Array<float>(1200 * 8));
    bool done = true;
    for (int64_t m = 2; m < 1200; m++)
      done = done && multiply(stream, {m, 8, 4, matrix(left.get(), 4, 1), matrix(right.get(), 8, 1), out.get(), 8, 1,
                                       false, false, nullptr}) == SFX_OK;
    check(done && kept() > 0 && kept() <= 4 * 512, std::to_string(kept()) + " are kept of products of 1,200 sizes");
    check(wrong() == 0, "all calls were as they must be");
  } else if (refused) {
    check(by_library == 0, "our own kernels computed all");
  }
  for (const bool half : {false, true}) grouped(false, half), grouped(true, half);
  stream_destroy(stream);
  return finish();
}
