// Tests of the CPU operators against float64 references, finite differences and themselves (other instruction sets,
// threads, batches). Build: compile kernels/ops/*.cpp once an instruction set with its -DSFX_ISA_... and flags
// (binding.gyp), kernels/ops/dispatch/*.cpp once, and link with this folder. `ops-test` runs the tests, `ops-test
// bench` prints GFLOP/s and the share of the measured fma peak.
#include "harness.h"

std::vector<Place> places() {
  std::vector<Place> all;
  for (const char* isa : {"avx512", "avx2", "neon", "portable"})
    if (const sfx_backend* b = sfx_cpu_backend(isa))
      for (int32_t threads : {1, 3}) all.push_back({b, threads});
  return all;
}

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "bench") return bench(argc - 2, argv + 2);
  const std::string only = argc > 1 ? argv[1] : "";
  const struct {
    const char* name;
    void (*run)();
  } suites[] = {{"elementary", test_elementary},       {"linear", test_linear},
                {"elementwise", test_elementwise},     {"attention", test_attention},
                {"variants", test_attention_variants}, {"moe", test_moe},
                {"vocabulary", test_vocabulary}};
  for (const auto& suite : suites)
    if (only.empty() || only == suite.name) {
      const int before = failures;
      suite.run();
      std::printf("%s %s\n", failures == before ? "ok" : "not ok", suite.name);
    }
  std::printf("%d checks, %d failed\n", checks, failures);
  return failures != 0;
}
