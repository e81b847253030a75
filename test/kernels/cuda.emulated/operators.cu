// The CPU backend's operator tests, unchanged, on the emulated device: every array of theirs lies in its memory.
#include "../../../kernels/cuda/operators.h"
#include "../ops.native/harness.h"

extern "C" const sfx_backend* sfx_backend_open(int32_t, int32_t, int32_t*, char*, int64_t);

namespace {

const sfx_backend* device() {
  int32_t status = SFX_OK;
  char message[256] = "";
  static const sfx_backend* const backend = sfx_backend_open(SFX_BACKEND_VERSION, 0, &status, message, sizeof message);
  return backend;
}

}  // namespace

std::vector<Place> places() { return {{device(), 1}}; }

int main(int argc, char** argv) {
  // The host writes these arrays by hand: zeros tell the device that they are written.
  test_memory.allocate = [](size_t bytes) {
    void* const memory = device()->allocate((int64_t)bytes);
    device()->fill_zero(nullptr, memory, (int64_t)bytes);
    return memory;
  };
  test_memory.release = [](void* memory) { device()->release(memory); };
  paged_is_packed = false, draws = 150;
  const std::string only = argc > 1 ? argv[1] : "";
  const struct {
    const char* name;
    void (*run)();
  } suites[] = {{"linear", test_linear},
                {"elementwise", test_elementwise},
                {"attention", test_attention},
                {"variants", test_attention_variants},
                {"moe", test_moe},
                {"vocabulary", test_vocabulary}};
  for (const auto& suite : suites) {
    if (!only.empty() && only != suite.name) continue;
    const int before = checks, failed = failures;
    suite.run();
    std::printf("%s - %s: %d checks\n", failures == failed ? "ok" : "not ok", suite.name, checks - before);
  }
  return failures != 0;
}
