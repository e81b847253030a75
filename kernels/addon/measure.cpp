// For benches: the fma peak of one core, and one linear layer as the engine runs it.
#include <time.h>

#include <cstdlib>

#include "../backend.h"
#include "../model/tensors.h"
#include "addon.h"
#include "arguments.h"

namespace sinkflex {

namespace {

double clock_seconds(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

const sfx_backend* backend_here() {
  const sfx_backend* backend = sfx_cpu_backend(nullptr);
  if (!backend) throw Error("SINKFLEX_CPU_UNSUPPORTED", "this machine or build cannot run what SINKFLEX_CPU names");
  return backend;
}

Napi::Value fma_peak(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  return guard(env, [&]() -> Napi::Value {
    const sfx_backend* b = backend_here();
    constexpr int64_t kSteps = 200'000;
    b->fma_work(kSteps / 10);
    double best = 0;
    for (int round = 0; round < 5; ++round) {
      const double start = clock_seconds(CLOCK_THREAD_CPUTIME_ID);
      const double operations = b->fma_work(kSteps);
      best = std::max(best, operations / (clock_seconds(CLOCK_THREAD_CPUTIME_ID) - start));
    }
    return Napi::Number::New(env, best);
  });
}

Napi::Value linear(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  return guard(env, [&]() -> Napi::Value {
    const sfx_backend* b = backend_here();
    const int64_t n = integer_of(info[0], "rows", 1, 1 << 20), in = integer_of(info[1], "in", 1, 1 << 20),
                  out = integer_of(info[2], "out", 1, 1 << 20);
    const auto threads = static_cast<int32_t>(integer_of(info[3], "threads", 1, 1024));
    Block x(b, n * in * 4), w(b, out * in * 4), y(b, n * out * 4);
    for (int64_t i = 0; i < n * in; ++i) x.floats()[i] = static_cast<float>(i % 17) - 8.0f;
    for (int64_t i = 0; i < out * in; ++i) w.floats()[i] = static_cast<float>(i % 13) - 6.0f;
    const sfx_tensor tx = view(x.floats(), {n, in}), tw = view(w.floats(), {out, in});
    sfx_tensor ty = view(y.floats(), {n, out});
    sfx_stream* stream = b->stream_create(threads);
    const auto run = [&] {
      const int32_t status = b->linear_forward(stream, &tx, &tw, nullptr, 0, &ty);
      return status != SFX_OK ? status : b->synchronize(stream);
    };
    int32_t status = run();
    const double wall = clock_seconds(CLOCK_MONOTONIC), cpu = clock_seconds(CLOCK_THREAD_CPUTIME_ID);
    if (status == SFX_OK) status = run();
    const double cpu_taken = clock_seconds(CLOCK_THREAD_CPUTIME_ID) - cpu,
                 wall_taken = clock_seconds(CLOCK_MONOTONIC) - wall;
    b->stream_destroy(stream);
    check(b, status, "linear_forward");
    Napi::Object result = Napi::Object::New(env);
    result.Set("seconds", wall_taken);
    result.Set("cpuSeconds", cpu_taken);
    return result;
  });
}

}  // namespace

void init_measure(Napi::Env env, Napi::Object exports) {
  exports.Set("measureFmaPeak", Napi::Function::New(env, fma_peak, "measureFmaPeak"));
  exports.Set("measureLinear", Napi::Function::New(env, linear, "measureLinear"));
}

}  // namespace sinkflex
