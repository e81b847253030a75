// The attention operators of a backend library, over its C interface alone. `driver LIBRARY check CASES [MOST]`: the golden
// cases in bf16, three times each, which must give the same bits (TAP). `driver LIBRARY bench MOST_TOKENS`: a JSON line a
// shape with the median time and the memory beside the tensors. `driver LIBRARY step MOST_TOKENS VOCABULARY`: the same of one
// layer's sink attention and the fused head, forward and backward, with the peak of memory beside what is given to them.
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "backend.h"

namespace {

using Floats = std::vector<float>;
using Halves = std::vector<uint16_t>;

const sfx_backend* b;
sfx_stream* s;
int64_t live_bytes = 0;  // in arrays on the device

void must(int32_t status) {
  if (status == SFX_OK) return;
  std::printf("Bail out! %s\n", b->last_error());
  std::exit(1);
}

Halves narrow(const Floats& x) {
  Halves h;
  for (float f : x) {
    uint32_t bits;
    std::memcpy(&bits, &f, 4);
    h.push_back((uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16));
  }
  return h;
}
Floats widen(const Halves& h) {
  Floats x;
  for (uint16_t half : h) {
    const uint32_t bits = (uint32_t)half << 16;
    float f;
    std::memcpy(&f, &bits, 4);
    x.push_back(f);
  }
  return x;
}

// An array on the device.
template <class T>
struct Device {
  int64_t count;
  T* at;
  explicit Device(int64_t n) : count(n), at(static_cast<T*>(b->allocate(std::max<int64_t>(n, 1) * (int64_t)sizeof(T)))) {
    if (!at) must(SFX_OUT_OF_MEMORY);
    live_bytes += count * (int64_t)sizeof(T);
  }
  explicit Device(const std::vector<T>& x) : Device((int64_t)x.size()) {
    must(b->copy(s, at, x.data(), count * (int64_t)sizeof(T)));
  }
  ~Device() {
    b->release(at);
    live_bytes -= count * (int64_t)sizeof(T);
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  std::vector<T> values() const {
    std::vector<T> x((size_t)count);
    must(b->copy(s, x.data(), at, count * (int64_t)sizeof(T)));
    must(b->synchronize(s));
    return x;
  }
};
sfx_tensor heads(const Device<uint16_t>& d, int64_t n, int64_t h, int64_t depth) {
  return {d.at, SFX_BF16, 3, {n, h, depth, 1}, {h * depth, depth, 1, 1}};
}

double largest_difference(const Floats& a, const Floats& c) {
  double most = 0;
  for (size_t i = 0; i < a.size(); i++) {
    const double d = std::fabs((double)a[i] - c[i]);
    if (!(d <= most)) most = a[i] == c[i] ? most : d;
  }
  return most;
}
double relative_error(const Floats& a, const Floats& c) {
  double d = 0, w = 0;
  for (size_t i = 0; i < a.size(); i++) d += ((double)a[i] - c[i]) * ((double)a[i] - c[i]), w += (double)c[i] * c[i];
  return w == 0 ? std::sqrt(d) : std::sqrt(d / w);
}

int number = 0, failed = 0;
void report(bool good, const std::string& name, const char* what, double error) {
  failed += !good;
  std::printf("%s %d - %s %s %.2g\n", good ? "ok" : "not ok", ++number, name.c_str(), what, error);
  std::fflush(stdout);
}

int check(const char* path, int most) {
  std::FILE* const file = std::fopen(path, "rb");
  if (!file) return 2;
  char name[64];
  long long n, H, K, D, window, prefix, cu_count;
  float scale;
  int has_dlse;
  while (most-- > 0 && std::fscanf(file, "%63s %lld %lld %lld %lld %lld %lld %f %lld %d", name, &n, &H, &K, &D, &window,
                                   &prefix, &scale, &cu_count, &has_dlse) == 10) {
    std::fgetc(file);
    std::vector<int32_t> cu((size_t)cu_count);
    if (std::fread(cu.data(), 4, cu.size(), file) != cu.size()) return 2;
    const auto read = [&](int64_t count) {
      Floats x((size_t)count);
      if (std::fread(x.data(), 4, x.size(), file) != x.size()) std::exit(2);
      return x;
    };
    const Floats q = read(n * H * D), k = read(n * K * D), v = read(n * K * D), sink = read(H), dout = read(n * H * D),
                 out = read(n * H * D), lse = read(n * H), dq = read(n * H * D), dk = read(n * K * D),
                 dv = read(n * K * D), dsink = read(H), dlse = has_dlse ? read(n * H) : Floats();
    const Device<uint16_t> Q(narrow(q)), X(narrow(k)), V(narrow(v)), dO(narrow(dout));
    const Device<float> S(sink), dL(dlse);
    Floats first;
    bool same = true;
    for (int run = 0; run < 3; run++) {
      Device<uint16_t> O(n * H * D), dQ(n * H * D), dK(n * K * D), dV(n * K * D);
      Device<float> L(n * H), dS(Floats((size_t)H));
      const sfx_attention_variant variant = {nullptr, nullptr, 0, SFX_SINK_SIGMOID, has_dlse ? dL.at : nullptr};
      const sfx_attention_mask plain = {window, prefix, scale, nullptr}, with_dlse = {window, prefix, scale, &variant};
      const sfx_tensor tq = heads(Q, n, H, D), tk = heads(X, n, K, D), tv = heads(V, n, K, D), tdo = heads(dO, n, H, D);
      sfx_tensor to = heads(O, n, H, D), tdq = heads(dQ, n, H, D), tdk = heads(dK, n, K, D), tdv = heads(dV, n, K, D);
      must(b->attention_forward(s, &tq, &tk, &tv, S.at, cu.data(), cu_count - 1, &plain, &to, L.at));
      must(b->attention_backward(s, &tdo, &tq, &tk, &tv, S.at, &to, L.at, cu.data(), cu_count - 1, &with_dlse, &tdq,
                                 &tdk, &tdv, dS.at));
      const Floats o = widen(O.values()), l = L.values(), gq = widen(dQ.values()), gk = widen(dK.values()),
                   gv = widen(dV.values()), gs = dS.values();
      Floats all;
      for (const Floats* x : {&o, &l, &gq, &gk, &gv, &gs}) all.insert(all.end(), x->begin(), x->end());
      if (run == 0) {
        first = all;
        report(largest_difference(o, out) <= 2e-2, name, "out", largest_difference(o, out));
        report(largest_difference(l, lse) <= 1e-3, name, "lse", largest_difference(l, lse));
        report(relative_error(gq, dq) <= 2e-2, name, "dq", relative_error(gq, dq));
        report(relative_error(gk, dk) <= 2e-2, name, "dk", relative_error(gk, dk));
        report(relative_error(gv, dv) <= 2e-2, name, "dv", relative_error(gv, dv));
        // Those of dlse are of another sum, in which the sink has no part.
        if (!has_dlse) report(relative_error(gs, dsink) <= 2e-2, name, "dsink", relative_error(gs, dsink));
      }
      same = same && std::memcmp(all.data(), first.data(), all.size() * 4) == 0;
    }
    report(same, name, "the same bits three times", 0);
  }
  std::fclose(file);
  std::printf("1..%d\n", number);
  return failed != 0 || number == 0;
}

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
template <class Work>
double median(const Work& work) {
  std::vector<double> times;
  const double begin = seconds();
  for (int i = 0; i < 12 && (i < 3 || seconds() - begin < 1.5); i++) {
    const double start = seconds();
    work();
    must(b->synchronize(s));
    if (i > 0) times.push_back(seconds() - start);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

Halves random(int64_t count) {
  static uint64_t state = 1;
  Halves h((size_t)count);
  for (auto& x : h) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    x = (uint16_t)(0x3c00 | (state >> 33 & 0x81ff));  // 0.008 to 2, both signs
  }
  return h;
}

// Of gpt-oss-20b.
constexpr int64_t H = 64, K = 8, D = 64, kHidden = 2880;

int bench(int64_t most) {
  for (int64_t n = std::min<int64_t>(1024, most); n <= most; n *= 2)
    for (const int64_t window : {(int64_t)-1, (int64_t)127}) {
      const Device<uint16_t> Q(random(n * H * D)), X(random(n * K * D)), V(random(n * K * D)), dO(random(n * H * D));
      const Device<uint16_t> O(n * H * D), dQ(n * H * D), dK(n * K * D), dV(n * K * D);
      const Device<float> S(Floats((size_t)H)), L(n * H), dS(Floats((size_t)H));
      const int32_t cu[] = {0, (int32_t)n};
      const sfx_attention_mask mask = {window, 0, 0.125f, nullptr};
      const sfx_tensor tq = heads(Q, n, H, D), tk = heads(X, n, K, D), tv = heads(V, n, K, D), tdo = heads(dO, n, H, D);
      sfx_tensor to = heads(O, n, H, D), tdq = heads(dQ, n, H, D), tdk = heads(dK, n, K, D), tdv = heads(dV, n, K, D);
      const auto forward = [&] { must(b->attention_forward(s, &tq, &tk, &tv, S.at, cu, 1, &mask, &to, L.at)); };
      const double f = median(forward);
      const double both = median([&] {
        forward();
        must(b->attention_backward(s, &tdo, &tq, &tk, &tv, S.at, &to, L.at, cu, 1, &mask, &tdq, &tdk, &tdv, dS.at));
      });
      std::printf("{\"of\":\"sinkflex\",\"n\":%lld,\"window\":%lld,\"forward_ms\":%.4f,\"both_ms\":%.4f,\"both_mib\":%.1f}\n",
                  (long long)n, (long long)window, f * 1e3, both * 1e3,
                  (double)(b->workspace_peak(s) + (n * H * D + n * K * D) * 4 + n * H * 4) / (1 << 20));
      std::fflush(stdout);
    }
  return 0;
}

int step(int64_t most, int64_t vocabulary) {
  for (int64_t n = std::min<int64_t>(1024, most); n <= most; n *= 2) {
    b->stream_destroy(s);
    s = b->stream_create(1);
    const Device<uint16_t> Q(random(n * H * D)), X(random(n * K * D)), V(random(n * K * D)), dO(random(n * H * D)),
        W(random(vocabulary * kHidden));
    const Device<float> S(Floats((size_t)H)), hidden(widen(random(n * kHidden))), wanted(Floats((size_t)n, 1.0f)), none(Floats((size_t)n));
    const int64_t given = live_bytes;
    const int32_t cu[] = {0, (int32_t)n};
    std::vector<int32_t> target((size_t)n);
    for (int64_t i = 0; i < n; i++) target[(size_t)i] = (int32_t)(i * 7919 % vocabulary);
    const sfx_attention_mask mask = {-1, 0, 0.125f, nullptr};
    const sfx_tensor tq = heads(Q, n, H, D), tk = heads(X, n, K, D), tv = heads(V, n, K, D), tdo = heads(dO, n, H, D);
    const sfx_tensor th = {hidden.at, SFX_F32, 2, {n, kHidden, 1, 1}, {kHidden, 1, 1, 1}};
    const sfx_tensor tw = {W.at, SFX_BF16, 2, {vocabulary, kHidden, 1, 1}, {kHidden, 1, 1, 1}};
    int64_t peak = 0;
    const double both = median([&] {
      const Device<uint16_t> O(n * H * D), dQ(n * H * D), dK(n * K * D), dV(n * K * D);
      const Device<float> L(n * H), dS(Floats((size_t)H)), logprob(n), entropy(n), lse(n), dHidden(n * kHidden);
      sfx_tensor to = heads(O, n, H, D), tdq = heads(dQ, n, H, D), tdk = heads(dK, n, K, D), tdv = heads(dV, n, K, D);
      sfx_tensor tdh = {dHidden.at, SFX_F32, 2, {n, kHidden, 1, 1}, {kHidden, 1, 1, 1}};
      must(b->attention_forward(s, &tq, &tk, &tv, S.at, cu, 1, &mask, &to, L.at));
      must(b->linear_logprob_forward(s, &th, &tw, target.data(), 1, logprob.at, entropy.at, lse.at));
      must(b->linear_logprob_backward(s, &th, &tw, target.data(), 1, lse.at, entropy.at, wanted.at, none.at, &tdh, nullptr));
      must(b->attention_backward(s, &tdo, &tq, &tk, &tv, S.at, &to, L.at, cu, 1, &mask, &tdq, &tdk, &tdv, dS.at));
      peak = std::max(peak, live_bytes - given);
    });
    std::printf("{\"of\":\"sinkflex\",\"step\":%lld,\"both_ms\":%.4f,\"both_mib\":%.1f}\n", (long long)n, both * 1e3,
                (double)(peak + b->workspace_peak(s)) / (1 << 20));
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  void* const library = dlopen(argv[1], RTLD_NOW);
  const auto open = library ? (sfx_backend_open_function)dlsym(library, "sfx_backend_open") : nullptr;
  int32_t status = SFX_OK;
  char message[2048] = "";
  if (open) b = open(SFX_BACKEND_VERSION, 0, &status, message, sizeof message);
  if (!b) {
    std::printf("Bail out! %s\n", library ? message : dlerror());
    return 1;
  }
  s = b->stream_create(1);
  const std::string what = argv[2];
  const int code = what == "check" ? check(argv[3], argc > 4 ? std::atoi(argv[4]) : 1 << 20)
                   : what == "step" && argc > 4 ? step(std::atoll(argv[3]), std::atoll(argv[4]))
                                                : bench(std::atoll(argv[3]));
  b->stream_destroy(s);
  return code;
}
