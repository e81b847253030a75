// `ops-test bench [isa] [threads]`: GFLOP/s of products, attention and experts, and their share of the fma peak
// measured beside them.
#include <time.h>

#include "harness.h"

namespace {

int32_t threads = 1;

// Processor time of this thread where one thread works, so that other load does not count; else the clock on the wall.
double now() {
  timespec t;
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// Best of several rounds, seconds a call.
template <class F>
double best(F&& f) {
  f();
  double least = 1e30;
  for (int round = 0; round < 7; round++) {
    int calls = 0;
    const double start = now();
    double taken = 0;
    do f(), calls++, taken = now() - start;
    while (taken < 0.03);
    least = std::min(least, taken / calls);
  }
  return least;
}

double peak = 0;  // GFLOP/s of the team
const sfx_backend* b;
sfx_stream* s;

void row(const char* name, double seconds, double flops) {
  std::printf("%-34s %10.1f us %8.1f GFLOP/s %5.1f %% of peak\n", name, seconds * 1e6, flops / seconds * 1e-9,
              100 * flops / seconds * 1e-9 / peak);
}

void linear(int64_t n, int64_t in, int64_t out) {
  Random r(1);
  const Floats x = r.normals(n * in), w = r.normals(out * in), bias = r.normals(out);
  Floats y(n * out), dx(n * in), dw(out * in);
  sfx_tensor tx = tensor(x, {n, in}), tw = tensor(w, {out, in}), tt = tensor(w, {out, in}), ty = tensor(y, {n, out}),
             tdx = tensor(dx, {n, in}), tdw = tensor(dw, {out, in});
  tt.stride[0] = 1, tt.stride[1] = out;
  char name[64];
  const double flops = 2.0 * n * in * out;
  std::snprintf(name, sizeof name, "linear %ldx%ldx%ld", (long)n, (long)in, (long)out);
  row(name, best([&] { b->linear_forward(s, &tx, &tw, nullptr, 0, &ty); }), flops);
  std::snprintf(name, sizeof name, "  [in,out]");
  row(name, best([&] { b->linear_forward(s, &tx, &tt, nullptr, 0, &ty); }), flops);
  std::snprintf(name, sizeof name, "  backward input");
  row(name, best([&] { b->linear_backward_input(s, &ty, &tw, 0, &tdx); }), flops);
  std::snprintf(name, sizeof name, "  backward weight");
  row(name, best([&] { b->linear_backward_weight(s, &ty, &tx, &tdw, nullptr); }), flops);
}

void attention(int64_t segments, int64_t length, int64_t H, int64_t K, int64_t D, int64_t window) {
  Random r(1);
  const int64_t n = segments * length;
  const Floats q = r.normals(n * H * D), k = r.normals(n * K * D), v = r.normals(n * K * D), sink(H);
  Floats out(n * H * D), lse(n * H), dq(n * H * D), dk(n * K * D), dv(n * K * D), ds(H);
  Ints cu;
  for (int64_t i = 0; i <= segments; i++) cu.push_back((int32_t)(i * length));
  sfx_tensor tq = tensor(q, {n, H, D}), tk = tensor(k, {n, K, D}), tv = tensor(v, {n, K, D}),
             to = tensor(out, {n, H, D});
  sfx_tensor tdq = tensor(dq, {n, H, D}), tdk = tensor(dk, {n, K, D}), tdv = tensor(dv, {n, K, D});
  const sfx_attention_mask mask = {window, 0, 0.125f};
  double pairs = 0;
  for (int64_t t = 0; t < length; t++) pairs += (double)std::min<int64_t>(t + 1, window < 0 ? t + 1 : window + 1);
  const double flops = 4.0 * pairs * segments * H * D;
  char name[80];
  std::snprintf(name, sizeof name, "attention %ldx%ld H%ld/%ld D%ld w%ld", (long)segments, (long)length, (long)H,
                (long)K, (long)D, (long)window);
  row(name,
      best([&] { b->attention_forward(s, &tq, &tk, &tv, sink.data(), cu.data(), segments, &mask, &to, lse.data()); }),
      flops);
  row("  backward", best([&] {
        b->attention_backward(s, &tq, &tq, &tk, &tv, sink.data(), &to, lse.data(), cu.data(), segments, &mask, &tdq,
                              &tdk, &tdv, ds.data());
      }),
      2.5 * flops);
}

void decode(int64_t rows, int64_t context, int64_t H, int64_t K, int64_t D) {
  Random r(1);
  const int64_t tokens = 64, most = (context + tokens - 1) / tokens, pages = rows * most;
  const Floats q = r.normals(rows * H * D), sink(H);
  Floats keys = r.normals(pages * K * D * tokens), values = r.normals(pages * K * D * tokens), out(rows * H * D);
  Ints sequence, position, table;
  for (int64_t i = 0; i < rows; i++) {
    sequence.push_back((int32_t)i), position.push_back((int32_t)context - 1);
    for (int64_t j = 0; j < most; j++) table.push_back((int32_t)(i * most + j));
  }
  const sfx_paged p = {
      rows, rows, context, sequence.data(), position.data(), table.data(), most, tokens, keys.data(), values.data(), K};
  sfx_tensor tq = tensor(q, {rows, H, D}), to = tensor(out, {rows, H, D});
  const sfx_attention_mask mask = {-1, 0, 0.125f};
  char name[80];
  std::snprintf(name, sizeof name, "decode %ld rows, %ld keys H%ld/%ld D%ld", (long)rows, (long)context, (long)H,
                (long)K, (long)D);
  row(name, best([&] { b->attention_paged(s, &tq, sink.data(), &p, &mask, &to); }), 4.0 * rows * context * H * D);
}

void moe(int64_t n, int64_t h, int64_t I, int64_t E, int32_t top_k) {
  Random r(1);
  const Floats x = r.normals(n * h), gu = r.normals(E * h * 2 * I, 0.1), gub(E * 2 * I),
               down = r.normals(E * I * h, 0.1), downb(E * h), weight(n * top_k, 0.5f);
  Ints index;
  for (int64_t i = 0; i < n; i++)
    for (int32_t j = 0, e = (int32_t)r.below(E); j < top_k; j++) index.push_back((int32_t)((e + j) % E));
  Floats y(n * h), saved(b->moe_saved_bytes(n, h, I, E, top_k) / 4 + 1), dx(n * h), dweight(n * top_k), dgu(gu.size()),
      dgub(gub.size()), ddown(down.size()), ddownb(downb.size());
  sfx_tensor tx = tensor(x, {n, h}), tg = tensor(gu, {E, h, 2 * I}), tgb = tensor(gub, {E, 2 * I}),
             td = tensor(down, {E, I, h}), tdb = tensor(downb, {E, h}), ty = tensor(y, {n, h});
  sfx_tensor tdx = tensor(dx, {n, h}), tdg = tensor(dgu, {E, h, 2 * I}), tdgb = tensor(dgub, {E, 2 * I}),
             tdd = tensor(ddown, {E, I, h}), tddb = tensor(ddownb, {E, h});
  char name[80];
  std::snprintf(name, sizeof name, "moe n%ld h%ld I%ld E%ld k%d", (long)n, (long)h, (long)I, (long)E, top_k);
  const double flops = 6.0 * n * top_k * h * I;
  row(name, best([&] {
        b->moe_forward(s, &tx, index.data(), weight.data(), top_k, &tg, &tgb, &td, &tdb, 7, &ty, saved.data());
      }),
      flops);
  row("  backward", best([&] {
        b->moe_backward(s, &tx, &tx, index.data(), weight.data(), top_k, &tg, &tgb, &td, &tdb, 7, saved.data(), &tdx,
                        dweight.data(), &tdg, &tdgb, &tdd, &tddb);
      }),
      2 * flops);
}

void head(int64_t n, int64_t h, int64_t V) {
  Random r(1);
  const Floats hidden = r.normals(n * h), w = r.normals(V * h, 0.1), dl = r.normals(n);
  Ints target(n, 1), token(n);
  Floats lp(n), en(n), lse(n), dh(n * h), dw(V * h);
  std::vector<sfx_sample_options> options((size_t)n, {1, 0, 1, {1, 2, 3, 4}, 5, 0, 0, nullptr, 0, nullptr, nullptr});
  sfx_tensor th = tensor(hidden, {n, h}), tw = tensor(w, {V, h}), tdh = tensor(dh, {n, h}), tdw = tensor(dw, {V, h});
  char name[80];
  std::snprintf(name, sizeof name, "logprob n%ld h%ld V%ld", (long)n, (long)h, (long)V);
  const double flops = 2.0 * n * h * V;
  row(name, best([&] { b->linear_logprob_forward(s, &th, &tw, target.data(), 1, lp.data(), en.data(), lse.data()); }),
      flops);
  row("  backward", best([&] {
        b->linear_logprob_backward(s, &th, &tw, target.data(), 1, lse.data(), en.data(), dl.data(), dl.data(), &tdh,
                                   &tdw);
      }),
      3 * flops);
  row("  sample", best([&] { b->linear_sample(s, &th, &tw, options.data(), token.data(), lp.data()); }), flops);
}

// Twelve independent fma chains in registers, on this thread.
#if defined(__x86_64__)
#define FMAS(v)                                                                                                        \
  "vfmadd231ps %%" v "14,%%" v "15,%%" v "0\n\tvfmadd231ps %%" v "14,%%" v "15,%%" v "1\n\tvfmadd231ps %%" v "14,%%" v \
  "15,%%" v                                                                                                            \
  "2\n\t"                                                                                                              \
  "vfmadd231ps %%" v "14,%%" v "15,%%" v "3\n\tvfmadd231ps %%" v "14,%%" v "15,%%" v "4\n\tvfmadd231ps %%" v "14,%%" v \
  "15,%%" v                                                                                                            \
  "5\n\t"                                                                                                              \
  "vfmadd231ps %%" v "14,%%" v "15,%%" v "6\n\tvfmadd231ps %%" v "14,%%" v "15,%%" v "7\n\tvfmadd231ps %%" v "14,%%" v \
  "15,%%" v                                                                                                            \
  "8\n\t"                                                                                                              \
  "vfmadd231ps %%" v "14,%%" v "15,%%" v "9\n\tvfmadd231ps %%" v "14,%%" v "15,%%" v "10\n\tvfmadd231ps %%" v          \
  "14,%%" v "15,%%" v "11\n\t"
#define CLOBBERS \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm14", "xmm15"
double measure_peak(bool wide) {
  const double seconds = best([&] {
    int count = 1000;
    if (wide)
      asm volatile("vzeroall\n1:\n\t" FMAS("zmm") "dec %0\n\tjnz 1b\n\tvzeroupper" : "+r"(count) : : CLOBBERS);
    else
      asm volatile("vzeroall\n1:\n\t" FMAS("ymm") "dec %0\n\tjnz 1b\n\tvzeroupper" : "+r"(count) : : CLOBBERS);
  });
  return 2.0 * (wide ? 16 : 8) * 12 * 1000 / seconds * 1e-9;
}
#endif

}  // namespace

int bench(int argc, char** argv) {
  b = sfx_cpu_backend(argc > 0 ? argv[0] : nullptr);
  threads = argc > 1 ? std::atoi(argv[1]) : 1;
  if (!b) return 1;
  s = b->stream_create(threads);
#if defined(__x86_64__)
  peak = threads * measure_peak(std::strstr(b->name, "avx512") != nullptr);
#else
  peak = NAN;
#endif
  std::printf("%s, %d threads, fma peak %.1f GFLOP/s\n", b->name, threads, peak);
  linear(1024, 1024, 1024);
  linear(2048, 128, 128);
  linear(2048, 256, 256);
  linear(64, 128, 128);
  linear(64, 128, 512);
  linear(8, 128, 128);
  linear(1, 128, 128);
  linear(2048, 128, 4);
  attention(8, 256, 4, 2, 32, -1);
  attention(1, 2048, 8, 2, 64, -1);
  attention(1, 4096, 8, 2, 64, 127);
  attention(8, 256, 4, 2, 16, 15);
  decode(64, 256, 4, 2, 32);
  decode(64, 1000, 8, 2, 64);
  decode(1, 256, 4, 2, 32);
  moe(2048, 128, 128, 4, 2);
  moe(64, 128, 128, 4, 2);
  head(2048, 128, 512);
  head(64, 128, 512);
  head(1024, 128, 4096);
  head(64, 128, 4096);
  b->stream_destroy(s);
  return 0;
}
