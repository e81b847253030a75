// The calls and constants of cuBLASLt's C interface that products need, as NVIDIA's documentation has them; they are
// the same in versions 11 to 13. Its matrices are column-major: C = A B in rows is C^T = B^T A^T in columns, so B comes
// first.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <array>
#include <map>
#include <mutex>

#include "cublaslt.h"

namespace sfx::cuda {

namespace {

using Handle = void*;
using Descriptor = void*;
using Layout = void*;
using Preference = void*;

// cudaDataType_t, cublasComputeType_t, cublasOperation_t and cublasLt's attributes and values.
constexpr int kR32F = 0, kR16BF = 14, kCompute32F = 68, kOpN = 0, kOpT = 1;
constexpr int kTransA = 3, kTransB = 4, kEpilogue = 7, kBiasPointer = 8;
constexpr uint32_t kEpilogueDefault = 1, kEpilogueBias = 4, kReductionNone = 0;
constexpr int kMaxWorkspace = 1, kReductionMask = 3, kAlignmentA = 5;  // then B, C, D

constexpr size_t kWorkspace = 32 << 20;
// Products of passes differ in their count of rows: without a bound there would be ever more plans.
constexpr size_t kMostPlans = 512;
constexpr size_t kLeastVersion = 110000, kNextVersion = 140000;

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

struct Library {
  size_t (*version)();
  int (*create)(Handle*);
  int (*descriptor_create)(Descriptor*, int compute, int scale);
  int (*descriptor_set)(Descriptor, int attribute, const void*, size_t);
  int (*layout_create)(Layout*, int type, uint64_t rows, uint64_t columns, int64_t leading);
  int (*descriptor_destroy)(Descriptor);
  int (*layout_destroy)(Layout);
  int (*preference_create)(Preference*);
  int (*preference_set)(Preference, int attribute, const void*, size_t);
  int (*preference_destroy)(Preference);
  int (*heuristic)(Handle, Descriptor, Layout a, Layout b, Layout c, Layout d, Preference, int wanted, Heuristic*,
                   int* found);
  int (*matmul)(Handle, Descriptor, const void* alpha, const void* a, Layout, const void* b, Layout, const void* beta,
                const void* c, Layout, void* d, Layout, const Algorithm*, void* workspace, size_t, void* stream);
  Handle handle;
  bool usable;
  char told[256];
};

void* open_library() {
  const char* named = getenv("SINKFLEX_CUBLASLT");
  if (named && *named) return strcmp(named, "off") ? dlopen(named, RTLD_NOW | RTLD_LOCAL) : nullptr;
#ifdef __CUDACC__
  for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11", "libcublasLt.so"})
    if (void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
#endif
  return nullptr;
}

Library load() {
  Library l = {};
  void* const library = open_library();
  const auto refuse = [&](const char* why) {
    snprintf(l.told, sizeof l.told, "own kernels (%s)", why);
    return l;
  };
  if (!library) return refuse("no libcublasLt");
  const char* missing = nullptr;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (!function) missing = name;
  };
  find(l.version, "cublasLtGetVersion");
  find(l.create, "cublasLtCreate");
  find(l.descriptor_create, "cublasLtMatmulDescCreate");
  find(l.descriptor_set, "cublasLtMatmulDescSetAttribute");
  find(l.layout_create, "cublasLtMatrixLayoutCreate");
  find(l.descriptor_destroy, "cublasLtMatmulDescDestroy");
  find(l.layout_destroy, "cublasLtMatrixLayoutDestroy");
  find(l.preference_create, "cublasLtMatmulPreferenceCreate");
  find(l.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  find(l.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  find(l.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  find(l.matmul, "cublasLtMatmul");
  char text[160];
  if (missing) {
    snprintf(text, sizeof text, "the libcublasLt found has no %s", missing);
    return refuse(text);
  }
  const size_t version = l.version();
  if (version < kLeastVersion || version >= kNextVersion) {
    snprintf(text, sizeof text, "libcublasLt %zu is not of versions 11 to 13", version);
    return refuse(text);
  }
  if (const int status = l.create(&l.handle)) {
    snprintf(text, sizeof text, "cublasLtCreate failed with status %d", status);
    return refuse(text);
  }
  l.usable = true;
  snprintf(l.told, sizeof l.told, "cuBLASLt %zu", version);
  return l;
}
// Opened at the first product, when the device of the process is chosen.
const Library& library() {
  static const Library l = load();
  return l;
}

// One operand as cuBLASLt sees it: a column-major matrix, perhaps to be transposed.
struct Operand {
  int operation;
  int64_t rows, columns, leading;
  int type;
  uint32_t alignment;
};

uint32_t alignment_of(const void* at) {
  uint32_t bytes = 256;
  while ((uintptr_t)at % bytes) bytes /= 2;
  return bytes;
}
// The transpose of X[rows, columns]; false where neither stride is 1.
bool transposed_operand(const Matrix& x, int64_t rows, int64_t columns, Operand* o) {
  const int type = x.dtype == SFX_BF16 ? kR16BF : kR32F;
  // The stride of a dimension of one may be anything.
  if (x.column == 1 || columns == 1)
    *o = {kOpN, columns, rows, rows == 1 ? columns : x.row, type, alignment_of(x.data)};
  else if (x.row == 1 || rows == 1)
    *o = {kOpT, rows, columns, x.column, type, alignment_of(x.data)};
  else
    return false;
  return o->leading >= o->rows;
}

// What is kept for products of a kind.
using Kind = std::array<int64_t, 14>;
Kind kind_of(const Operand& first, const Operand& second, const Operand& out, const float* bias) {
  return {first.operation, first.rows,
          first.columns,   first.leading,
          first.alignment, second.operation,
          second.rows,     second.columns,
          second.leading,  second.alignment,
          out.leading,     out.alignment,
          first.type,      bias ? alignment_of(bias) : 0};
}
struct Plan {
  Descriptor descriptor;
  Layout a, b, c;
  Heuristic chosen;
  bool found;
};

int make_plan(const Library& l, const Operand& first, const Operand& second, const Operand& out, const float* bias,
              Plan* plan) {
  const uint32_t epilogue = bias ? kEpilogueBias : kEpilogueDefault;
  Preference preference = nullptr;
  int status = l.descriptor_create(&plan->descriptor, kCompute32F, kR32F);
  const auto next = [&](auto&& call) { status = status ? status : call(); };
  const auto describe = [&](int attribute, const auto& value) {
    next([&] { return l.descriptor_set(plan->descriptor, attribute, &value, sizeof value); });
  };
  const auto prefer = [&](int attribute, const auto& value) {
    next([&] { return l.preference_set(preference, attribute, &value, sizeof value); });
  };
  const auto lay_out = [&](Layout* layout, const Operand& o) {
    next([&] { return l.layout_create(layout, o.type, (uint64_t)o.rows, (uint64_t)o.columns, o.leading); });
  };
  describe(kTransA, first.operation), describe(kTransB, second.operation), describe(kEpilogue, epilogue);
  if (bias) describe(kBiasPointer, bias);
  lay_out(&plan->a, first), lay_out(&plan->b, second), lay_out(&plan->c, out);
  next([&] { return l.preference_create(&preference); });
  prefer(kMaxWorkspace, kWorkspace), prefer(kReductionMask, kReductionNone);
  prefer(kAlignmentA, first.alignment), prefer(kAlignmentA + 1, second.alignment);
  prefer(kAlignmentA + 2, out.alignment), prefer(kAlignmentA + 3, out.alignment);
  int found = 0;
  // A status other than 0 says here that no algorithm takes the product.
  if (!status)
    plan->found = l.heuristic(l.handle, plan->descriptor, plan->a, plan->b, plan->c, plan->c, preference, 1,
                              &plan->chosen, &found) == 0 &&
                  found > 0;
  if (preference) l.preference_destroy(preference);
  return status;
}

// What was enqueued needs it no more.
void end_plan(const Library& l, const Plan& plan) {
  if (plan.descriptor) l.descriptor_destroy(plan.descriptor);
  for (const Layout layout : {plan.a, plan.b, plan.c})
    if (layout) l.layout_destroy(layout);
}

}  // namespace

int64_t cublaslt_workspace_bytes() { return library().usable ? (int64_t)kWorkspace : 0; }

const char* products_by() { return library().told; }

int32_t multiply_by_cublaslt(sfx_stream* stream, const Product& p) {
  if (p.m == 0 || p.n == 0 || p.k == 0 || p.c_column != 1 || p.a.dtype != p.b.dtype) return SFX_UNSUPPORTED;
  const Library& l = library();
  Operand first, second;
  if (!l.usable || !transposed_operand(p.b, p.k, p.n, &first) || !transposed_operand(p.a, p.m, p.k, &second))
    return SFX_UNSUPPORTED;
  const Operand out = {kOpN, p.n, p.m, p.m == 1 ? p.n : p.c_row, kR32F, alignment_of(p.c)};

  static std::mutex mutex;
  static std::map<Kind, Plan> plans;
  const std::lock_guard<std::mutex> lock(mutex);
  const Kind kind = kind_of(first, second, out, p.bias);
  auto known = plans.find(kind);
  if (known == plans.end()) {
    Plan plan = {};
    if (const int status = make_plan(l, first, second, out, p.bias, &plan)) {
      end_plan(l, plan);
      return fail(SFX_DEVICE_ERROR, "cuBLASLt: preparing a product failed with status %d", status);
    }
    if (plans.size() == kMostPlans) {
      for (const auto& [_, old] : plans) end_plan(l, old);
      plans.clear();
    }
    known = plans.emplace(kind, plan).first;
  }
  const Plan& plan = known->second;
  if (!plan.found) return SFX_UNSUPPORTED;
  int status = p.bias ? l.descriptor_set(plan.descriptor, kBiasPointer, &p.bias, sizeof p.bias) : 0;
  Scratch scratch(stream);
  void* const workspace = plan.chosen.workspace > 0 ? scratch.take<char>((int64_t)plan.chosen.workspace) : nullptr;
  SFX_TRY(scratch.status());
  const float alpha = 1, beta = p.chain || p.add ? 1 : 0;
  if (!status)
    status = l.matmul(l.handle, plan.descriptor, &alpha, p.b.data, plan.a, p.a.data, plan.b, &beta, p.c, plan.c, p.c,
                      plan.c, &plan.chosen.algorithm, workspace, plan.chosen.workspace, native_stream(stream));
  if (status) return fail(SFX_DEVICE_ERROR, "cuBLASLt: a product failed with status %d", status);
  written_outside(p.c, p.m, p.n, out.leading);
  return SFX_OK;
}

}  // namespace sfx::cuda
