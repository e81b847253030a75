// Stands in for libcublasLt: the twelve calls that products make, as strict about their arguments as the documentation
// is, and multiplication on the CPU. What is wrong is said on stderr and counted.
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kOk = 0, kInvalid = 7, kNotSupported = 15;
constexpr uint64_t kMark = 0x51bc5ca1e;
constexpr size_t kWorkspace = 4096;

int calls = 0, wrong = 0, kept = 0;
int refuse(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::fprintf(stderr, "cublaslt stand-in: ");
  std::vfprintf(stderr, format, arguments);
  std::fprintf(stderr, "\n");
  va_end(arguments);
  wrong++;
  return kInvalid;
}

struct Attributes {
  int compute = -1, scale = -1;  // of a descriptor
  std::map<int, std::vector<unsigned char>> values;
  template <class T>
  T get(int attribute, T standard) const {
    const auto found = values.find(attribute);
    if (found == values.end()) return standard;
    if (found->second.size() != sizeof(T))
      return refuse("attribute %d has %zu bytes", attribute, found->second.size()), standard;
    T value;
    std::memcpy(&value, found->second.data(), sizeof value);
    return value;
  }
};
struct Layout {
  int type;
  uint64_t rows, columns;
  int64_t leading;
};
struct Algorithm {
  uint64_t data[8];
};
struct Heuristic {
  Algorithm algorithm;
  size_t workspace;
  int32_t state;
  float waves;
  int32_t reserved[4];
};

int set(Attributes* to, int attribute, const void* value, size_t bytes) {
  const auto* at = static_cast<const unsigned char*>(value);
  to->values[attribute].assign(at, at + bytes);
  return kOk;
}
float element(const void* matrix, int type, int64_t i) {
  if (type == 0) return static_cast<const float*>(matrix)[i];
  const uint32_t bits = (uint32_t)static_cast<const uint16_t*>(matrix)[i] << 16;
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}
// Layouts and operations agree: D[m,n] = op(A)[m,k] op(B)[k,n].
int check_product(const Attributes& d, const Layout& a, const Layout& b, const Layout& c, uint64_t* k) {
  if (d.compute != 68 || d.scale != 0) return refuse("compute type %d, scale type %d", d.compute, d.scale);
  if (a.type != b.type || (a.type != 0 && a.type != 14) || c.type != 0)
    return refuse("types %d %d %d", a.type, b.type, c.type);
  for (const Layout& l : {a, b, c})
    if (l.leading < (int64_t)l.rows)
      return refuse("leading dimension %lld of %llu rows", (long long)l.leading, (unsigned long long)l.rows);
  const int32_t ta = d.get<int32_t>(3, 0), tb = d.get<int32_t>(4, 0);
  if ((ta | tb) & ~1) return refuse("operations %d %d", ta, tb);
  *k = ta ? a.rows : a.columns;
  if ((ta ? a.columns : a.rows) != c.rows || (tb ? b.rows : b.columns) != c.columns || (tb ? b.columns : b.rows) != *k)
    return refuse("shapes do not fit");
  const uint32_t epilogue = d.get<uint32_t>(7, 1);
  if (epilogue != 1 && epilogue != 4) return refuse("epilogue %u", epilogue);
  if (epilogue == 4 && !d.get<const float*>(8, nullptr)) return refuse("a bias without its pointer");
  return kOk;
}

}  // namespace

EXPORT int stand_in_calls() { return calls; }
EXPORT int stand_in_wrong() { return wrong; }
// Descriptors and layouts that were made and not destroyed.
EXPORT int stand_in_kept() { return kept; }

EXPORT size_t cublasLtGetVersion() {
  const char* version = std::getenv("STAND_IN_VERSION");
  return version ? (size_t)std::atoll(version) : 130000;
}
EXPORT int cublasLtCreate(void** handle) {
  *handle = &calls;
  return kOk;
}
EXPORT int cublasLtMatmulDescCreate(Attributes** d, int compute, int scale) {
  *d = new Attributes{compute, scale, {}};
  kept++;
  return kOk;
}
EXPORT int cublasLtMatmulDescDestroy(Attributes* d) {
  delete d;
  kept--;
  return kOk;
}
EXPORT int cublasLtMatmulDescSetAttribute(Attributes* d, int attribute, const void* value, size_t bytes) {
  return set(d, attribute, value, bytes);
}
EXPORT int cublasLtMatrixLayoutCreate(Layout** l, int type, uint64_t rows, uint64_t columns, int64_t leading) {
  *l = new Layout{type, rows, columns, leading};
  kept++;
  return kOk;
}
EXPORT int cublasLtMatrixLayoutDestroy(Layout* l) {
  delete l;
  kept--;
  return kOk;
}
EXPORT int cublasLtMatmulPreferenceCreate(Attributes** p) {
  *p = new Attributes;
  return kOk;
}
EXPORT int cublasLtMatmulPreferenceSetAttribute(Attributes* p, int attribute, const void* value, size_t bytes) {
  return set(p, attribute, value, bytes);
}
EXPORT int cublasLtMatmulPreferenceDestroy(Attributes* p) {
  delete p;
  return kOk;
}
// Takes no product of a single column; wants a little workspace for all others, and remembers what alignment it was
// promised.
EXPORT int cublasLtMatmulAlgoGetHeuristic(void* handle, const Attributes* d, const Layout* a, const Layout* b,
                                          const Layout* c, const Layout* out, const Attributes* p, int wanted,
                                          Heuristic* result, int* found) {
  *found = 0;
  uint64_t k;
  if (handle != &calls || c != out || wanted < 1) return refuse("a handle, layout or count that is not ours");
  if (const int status = check_product(*d, *a, *b, *c, &k)) return status;
  if (p->get<uint32_t>(3, ~0u) != 0) return refuse("sums may be split: results would depend on the run");
  if (p->get<uint64_t>(1, 0) < kWorkspace) return refuse("less workspace than is needed");
  if (c->columns == 1) return kNotSupported;
  *result = {};
  result->algorithm.data[0] = kMark;
  for (int i = 0; i < 4; i++) result->algorithm.data[1 + i] = p->get<uint32_t>(5 + i, 256);
  result->workspace = kWorkspace;
  *found = 1;
  return kOk;
}
EXPORT int cublasLtMatmul(void* handle, const Attributes* d, const float* alpha, const void* a, const Layout* la,
                          const void* b, const Layout* lb, const float* beta, const void* c, const Layout* lc,
                          float* out, const Layout* lout, const Algorithm* algorithm, void* workspace, size_t bytes,
                          void* stream) {
  uint64_t k;
  if (const int status = check_product(*d, *la, *lb, *lc, &k)) return status;
  if (handle != &calls || lc != lout || c != out || !stream)
    return refuse("a handle, layout or stream that is not ours");
  if (algorithm->data[0] != kMark) return refuse("an algorithm that no heuristic gave");
  const void* const pointers[] = {a, b, c, out};
  for (int i = 0; i < 4; i++)
    if ((uintptr_t)pointers[i] % algorithm->data[1 + i]) return refuse("matrix %d is not aligned as promised", i);
  if (!workspace || bytes < kWorkspace || (uintptr_t)workspace % 16) return refuse("no workspace");
  std::memset(workspace, 0xee, bytes);
  const bool ta = d->get<int32_t>(3, 0) != 0, tb = d->get<int32_t>(4, 0) != 0;
  const float* const bias = d->get<uint32_t>(7, 1) == 4 ? d->get<const float*>(8, nullptr) : nullptr;
  for (int64_t j = 0; j < (int64_t)lc->columns; j++)
    for (int64_t i = 0; i < (int64_t)lc->rows; i++) {
      double sum = 0;
      for (int64_t l = 0; l < (int64_t)k; l++)
        sum += (double)element(a, la->type, ta ? l + i * la->leading : i + l * la->leading) *
               element(b, lb->type, tb ? j + l * lb->leading : l + j * lb->leading);
      float* const to = out + i + j * lc->leading;
      *to = (float)(*alpha * sum) + (*beta == 0 ? 0 : *beta * *to) + (bias ? bias[i] : 0);
    }
  calls++;
  return kOk;
}
