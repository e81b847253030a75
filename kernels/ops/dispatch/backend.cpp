// sfx_cpu_backend: which instruction set runs here. SINKFLEX_CPU forces one; every choice computes the same bits.
#include "../../backend.h"

#include <stdlib.h>
#include <string.h>

extern "C" {
#if defined(__x86_64__)
const sfx_backend* sfx_table_avx512();
const sfx_backend* sfx_table_avx2();
#elif defined(__aarch64__)
const sfx_backend* sfx_table_neon();
#endif
const sfx_backend* sfx_table_portable();
}

namespace {

struct Choice {
  const char* name;
  const sfx_backend* (*table)();
  bool (*runs)();
};

const Choice choices[] = {
#if defined(__x86_64__)
    {"avx512", sfx_table_avx512,
     [] {
       return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
              __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
              __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
     }},
    {"avx2", sfx_table_avx2, [] { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }},
#elif defined(__aarch64__)
    {"neon", sfx_table_neon, [] { return true; }},
#endif
    {"portable", sfx_table_portable, [] { return true; }},
};

}  // namespace

extern "C" const sfx_backend* sfx_cpu_backend(const char* isa) {
  if (!isa || !*isa) isa = getenv("SINKFLEX_CPU");
#if defined(__x86_64__)
  __builtin_cpu_init();
#endif
  for (const Choice& c : choices)
    if ((!isa || !*isa || strcmp(isa, c.name) == 0) && c.runs()) return c.table();
  return nullptr;
}
