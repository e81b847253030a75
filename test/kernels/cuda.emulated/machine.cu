// The emulated machine itself: its collectives compute what the PTX ISA says, and each kind of wrong kernel is told.
#include <stddef.h>

#include "../../../kernels/backend.h"
#include "../../../kernels/cuda/convert.cuh"
#include "../../../kernels/cuda/intrinsics.cuh"
#include "../../../kernels/cuda/reduce.cuh"
#include "harness.h"

extern "C" const sfx_backend* sfx_backend_open(int32_t, int32_t, int32_t*, char*, int64_t);

using namespace sfx;

namespace {

// ---- kernels that are right

__global__ void multiply(const Bf16* a, const Bf16* b, float* c) {  // a[16][16], b[8 columns][16], c[16][8]
  Bf16* sa = (Bf16*)shared_memory();
  Bf16* sb = sa + 16 * 24;  // rows of 24: no two of eight in the same banks
  const int lane = threadIdx.x, g = lane / 4, t = lane % 4;
  copy_async(sa + lane / 2 * 24 + lane % 2 * 8, a + lane / 2 * 16 + lane % 2 * 8, true);
  copy_async(sb + lane / 2 * 24 + lane % 2 * 8, b + (lane / 2 < 8 ? lane / 2 * 16 : 0) + lane % 2 * 8, lane / 2 < 8);
  copy_async_commit();
  copy_async_wait<0>();
  __syncwarp();
  uint32_t x[4], y[4];
  load_matrices(x, sa + (lane / 8 % 2 * 8 + lane % 8) * 24 + lane / 16 * 8);
  load_matrices(y, sb + (lane / 16 * 8 + lane % 8) * 24 + lane / 8 % 2 * 8);
  float sum[4] = {0, 0, 0, 0};
  multiply_add(Bf16{}, sum, x, y[0], y[1]);
  float none[4] = {0, 0, 0, 0};
  multiply_add(Bf16{}, none, x, y[2], y[3]);  // the zeros that cp.async wrote
  for (int e = 0; e < 4; e++) c[(g + e / 2 * 8) * 8 + 2 * t + e % 2] = sum[e] + none[e];
}

__global__ void transpose(const Bf16* from, Bf16* to) {  // one 8 x 8 matrix, four times
  Bf16* s = (Bf16*)shared_memory();
  const int lane = threadIdx.x;
  for (int m = 0; m < 4; m++)
    for (int i = lane; i < 64; i += 32) s[m * 64 + i] = from[i];
  __syncwarp();
  uint32_t r[4];
  load_matrices_transposed(r, s + lane * 8);
  to[lane / 4 * 8 + 2 * (lane % 4)].bits = (uint16_t)r[3];
  to[lane / 4 * 8 + 2 * (lane % 4) + 1].bits = (uint16_t)(r[3] >> 16);
}

__global__ void sums(const float* from, float* to, int* counter) {
  const float all = warp_sum(from[blockIdx.x * blockDim.x + threadIdx.x]);
  float* s = (float*)shared_memory();
  if (threadIdx.x % 32 == 0) s[threadIdx.x / 32] = all, atomicAdd(counter, 1);
  __syncthreads();
  if (threadIdx.x == 0) to[blockIdx.x] = s[0] + s[1];
  const unsigned votes = __ballot_sync(kWholeWarp, threadIdx.x % 3 == 0);
  if (threadIdx.x == 40 && votes != (0x49249249u << 1)) to[blockIdx.x] = -1;
}

// ---- kernels that are wrong, each in its own way

enum Wrong {
  kNoBarrier,
  kNoWarpBarrier,
  kReadThenWrite,
  kNoWait,
  kLeftInFlight,
  kUninitialised,
  kOutOfShared,
  kOutOfDevice,
  kUnwrittenDevice,
  kHostMemory,
  kDivergedBarrier,
  kDivergedShuffle,
  kMisaligned,
  kOtherStack,
  kWrongs
};
const char* const told[kWrongs] = {"wrote",
                                   "wrote",
                                   "race: writes",
                                   "not waited for",
                                   "nobody waited for",
                                   "uninitialised: reads shared",
                                   "out of bounds",
                                   "out of bounds",
                                   "uninitialised: reads 4 bytes of device",
                                   "memory of the host",
                                   "divergence",
                                   "divergence",
                                   "no multiple",
                                   "local memory of another thread"};

__global__ void wrong(Wrong what, const float* from, float* to) {
  float* s = (float*)shared_memory();
  const int i = threadIdx.x;
  switch (what) {
    case kNoBarrier:
      s[i] = from[i];
      to[i] = s[63 - i];
      break;
    case kNoWarpBarrier:
      s[i] = from[i];
      to[i] = __shfl_xor_sync(kWholeWarp, s[i ^ 1], 1);  // a shuffle orders no memory
      break;
    case kReadThenWrite:
      s[i] = from[i];
      __syncthreads();
      to[i] = s[63 - i];
      s[i] = 0;
      break;
    case kNoWait:
      copy_async(s + 4 * i, from + 4 * (i % 16), true);
      copy_async_commit();
      copy_async_wait<1>();
      __syncthreads();
      to[i] = s[4 * i];
      break;
    case kLeftInFlight:
      copy_async(s + 4 * i, from + 4 * (i % 16), true);
      break;
    case kUninitialised:
      if (i != 5) s[i] = from[i];
      __syncthreads();
      to[i] = s[i];
      break;
    case kOutOfShared:
      s[i + 1000] = 1;
      break;
    case kOutOfDevice:
      to[i + 1] = from[i];
      break;
    case kUnwrittenDevice:
      to[i] = to[63 - i];
      break;
    case kHostMemory:
      to[i] = from[i];
      break;
    case kDivergedBarrier:
      if (i % 2)
        __syncthreads();
      else
        to[i] = __shfl_sync(kWholeWarp, 1.0f, 0);
      break;
    case kDivergedShuffle:
      if (i % 2) __syncwarp();
      to[i] = __shfl_sync(kWholeWarp, 1.0f, 0);
      break;
    case kMisaligned:
      to[i] = *(const float*)((const char*)from + 2);
      break;
    case kOtherStack: {
      float mine = from[i];
      float** where = (float**)shared_memory();
      if (i == 0) where[0] = &mine;
      __syncthreads();
      to[i] = *where[0];
      break;
    }
    default:
      break;
  }
}

void right() {
  Random r{7};
  const Floats a = r.normals(256), b = r.normals(128);
  Array<Bf16> ha(256), hb(128);
  for (int i = 0; i < 256; i++) narrow(a[i], &ha[i]);
  for (int i = 0; i < 128; i++) narrow(b[i], &hb[i]);
  Device<Bf16> da(ha), db(hb);
  Device<float> dc(128);
  check(SFX_LAUNCH(nullptr, multiply, cuda::grid(1), 32, 32 * 48, da.get(), db.get(), dc.get()) == SFX_OK,
        "a product runs");
  const Floats c = dc.values();
  float worst = 0;
  for (int i = 0; i < 16; i++)
    for (int j = 0; j < 8; j++) {
      double sum = 0;
      for (int k = 0; k < 16; k++) sum += (double)bf16(a[i * 16 + k]) * bf16(b[j * 16 + k]);
      worst = fmaxf(worst, (float)fabs(sum - c[i * 8 + j]));
    }
  check(worst < 1e-5f, "mma.sync and ldmatrix by the PTX layouts: " + std::to_string(worst));

  Device<Bf16> dt(64);
  SFX_LAUNCH(nullptr, transpose, cuda::grid(1), 32, 4 * 128, da.get(), dt.get());
  const Array<Bf16> t = dt.values();
  bool turned = true;
  for (int i = 0; i < 64; i++) turned = turned && t[i].bits == ha[i % 8 * 8 + i / 8].bits;
  check(turned, "ldmatrix.trans turns a matrix");

  const Floats x = r.normals(256);
  Device<float> dx(x), dy(4);
  Device<int32_t> counter(Ints{0});
  Floats before;
  for (uint64_t seed : {0, 1, 2, 3, 4, 5}) {
    emulation::set_seed(seed);
    check(SFX_LAUNCH(nullptr, sums, cuda::grid(4), 64, 8, dx.get(), dy.get(), counter.get()) == SFX_OK, "sums run");
    const Floats y = dy.values();
    float sum = 0;
    for (int i = 0; i < 64; i++) sum += x[64 + i];
    check(fabsf(y[1] - sum) < 1e-4f && (before.empty() || before == y), "the same sums on every schedule");
    before = y;
  }
  check(counter.values()[0] == 6 * 8, "atomics count");
}

void conversions() {
  check(widen(F16{0x3c00}) == 1 && widen(F16{0x0001}) == 0x1p-24f && widen(F16{0xfc00}) == -INFINITY,
        "fp16 is widened");
  bool same = true;
  for (uint32_t bits = 0; bits < 0x7c00; bits++) same = same && pack(F16{}, widen(F16{(uint16_t)bits}), 0) == bits;
  check(same, "fp16 values keep their bits");
  check(pack(F16{}, 1.0f + 0x1p-11f, 1.0f + 3 * 0x1p-11f) == 0x3c023c00u, "fp16 rounds to nearest, ties to even");
  check(pack(F16{}, 65520.0f, 65519.0f) == 0x7bff7c00u, "fp16 ends at 65504");

  Random r{3};
  const int64_t n = 5, heads = 3, depth = 5, padded = 8;
  const Floats x = r.normals(n * (heads * depth + 2));
  Device<float> from(x), back((int64_t)x.size());
  Device<uint16_t> packed(n * heads * padded);
  sfx_tensor t = {from.get(), SFX_F32, 3, {n, heads, depth, 1}, {heads * depth + 2, depth, 1, 1}};
  check(cuda::gather_heads(nullptr, t, packed.get(), SFX_BF16, padded) == SFX_OK, "heads are gathered");
  const Array<uint16_t> p = packed.values();
  bool good = true;
  for (int64_t i = 0; i < n * heads * padded; i++) {
    const int64_t d = i % padded, h = i / padded % heads, row = i / padded / heads;
    const float want = d < depth ? bf16(x[row * (heads * depth + 2) + h * depth + d]) : 0;
    good = good && widen(Bf16{p[i]}) == want;
  }
  check(good, "gathered heads are rounded and padded with zeros");
  sfx::cuda::fill_zero(nullptr, back.get(), (int64_t)x.size() * 4);
  t.data = back.get();
  check(cuda::scatter_heads(nullptr, packed.get(), SFX_BF16, padded, t) == SFX_OK, "heads are scattered");
  const Floats y = back.values();
  good = true;
  for (int64_t i = 0; i < (int64_t)x.size(); i++) {
    const int64_t column = i % (heads * depth + 2);
    good = good && y[i] == (column < heads * depth ? bf16(x[i]) : 0);
  }
  check(good, "scattered heads come back, and nothing beside them");
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

void mistakes() {
  for (uint64_t seed : {3, 4, 5})
    for (int i = 0; i < kWrongs; i++) {
      emulation::set_seed(seed);
      Device<float> from(Floats(64, 1.0f)), to(64);
      Floats host(64, 1.0f);
      const float* source = i == kHostMemory ? host.data() : from.get();
      const int32_t status = SFX_LAUNCH(nullptr, wrong, cuda::grid(2), 64, 1024, (Wrong)i, source, to.get());
      check(status == SFX_DEVICE_ERROR && strstr(cuda::last_error(), told[i]) &&
                strstr(cuda::last_error(), "wrong, block ("),
            "schedule " + std::to_string(seed) + " tells: " + std::string(told[i]) + " <- " +
                first_line(status == SFX_OK ? "nothing" : cuda::last_error()));
    }
  emulation::set_seed(1);
  Device<float> from(Floats(64, 1.0f)), to(64);
  Floats host(64, 2.0f);
  emulation::allow_host_memory(true);
  check(SFX_LAUNCH(nullptr, wrong, cuda::grid(2), 64, 1024, kHostMemory, host.data(), to.get()) == SFX_OK &&
            to.values()[5] == 2,
        "memory of the host can be allowed; a mistake leaves nothing behind");
  emulation::allow_host_memory(false);
  check(SFX_LAUNCH(nullptr, wrong, cuda::grid(1), 2048, 0, kWrongs, from.get(), to.get()) == SFX_DEVICE_ERROR,
        "a block of 2048 threads cannot be launched");
}

}  // namespace

// Every member from the name on is a pointer.
void table_is_full() {
  int32_t status = 0;
  char text[256];
  const sfx_backend* table = sfx_backend_open(SFX_BACKEND_VERSION, 0, &status, text, sizeof text);
  uintptr_t entries[(sizeof(sfx_backend) - offsetof(sfx_backend, name)) / sizeof(uintptr_t)];
  memcpy(entries, (const char*)table + offsetof(sfx_backend, name), sizeof entries);
  bool full = true;
  for (uintptr_t entry : entries) full = full && entry != 0;
  check(full, "every entry of the backend's table is there");
}

int main() {
  table_is_full();
  right();
  conversions();
  mistakes();
  return finish();
}
