// Running a kernel on the emulated machine.
#ifndef SINKFLEX_CUDA_EMULATION_LAUNCH_H
#define SINKFLEX_CUDA_EMULATION_LAUNCH_H

#include <tuple>

#include "cuda.h"

namespace emulation {

struct Launch {
  const char* kernel;
  dim3 blocks, threads;
  size_t shared_bytes;
  const void* arguments;  // [arguments_bytes]
  size_t arguments_bytes;
  void (*body)(const void* arguments);
};
// false: the kernel did something wrong; launch_problem says what.
bool run(const Launch&);
const char* launch_problem();

// How threads and blocks are ordered from now on. Each seed is one order; by its remainder by 3 warps take turns, or
// one runs as far as it can, or the next thread is drawn.
void set_seed(uint64_t seed);
// Whether kernels may read and write memory of the host (as after cudaHostRegister). Device memory is watched byte by
// byte either way.
void allow_host_memory(bool);

template <class... Parameters, class... Arguments>
bool launch(const char* name, void (*kernel)(Parameters...), dim3 blocks, dim3 threads, size_t shared_bytes,
            Arguments... arguments) {
  struct Call {
    void (*kernel)(Parameters...);
    std::tuple<Parameters...> parameters;
  };
  const Call call = {kernel, std::tuple<Parameters...>(arguments...)};
  return run({name, blocks, threads, shared_bytes, &call, sizeof(Call), [](const void* at) {
                const Call& c = *static_cast<const Call*>(at);
                std::apply(c.kernel, c.parameters);
              }});
}

}  // namespace emulation
#endif
