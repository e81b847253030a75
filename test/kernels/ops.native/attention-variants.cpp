// The variants of sink attention, each against a float64 reference and its finite differences: documents, softcap,
// ALiBi, the sink functions, a gradient of the log-sum-exp, bf16 storage; alone and all together.
#include "harness.h"

namespace {

struct Variant {
  const char* name;
  bool documents, slopes, softcap, dlse;
  int32_t function;
  int64_t window, prefix, depth;
  Ints cu;
};

constexpr int64_t H = 6, K = 2, G = H / K;

struct Reference {
  const Variant& c;
  Doubles q, k, v, sink, out, lse;
  Ints start;
  Doubles slopes;
  double cap, scale;

  double f(double l, double s) const {
    if (c.function == SFX_SINK_GATE) return 1 / (1 + std::exp(-s));
    if (c.function == SFX_SINK_SATURATION) return -std::expm1(-std::exp(l - s));
    return 1 / (1 + std::exp(s - l));
  }
  double loss(const Floats& dout, const Floats& dlse) {
    double total = 0;
    for (size_t i = 0; i + 1 < c.cu.size(); i++)
      for (int64_t row = c.cu[i]; row < c.cu[i + 1]; row++)
        for (int64_t h = 0; h < H; h++) {
          const int64_t t = row - c.cu[i];
          Doubles score;
          double top = -INFINITY;
          for (int64_t j = 0; j <= t; j++) {
            double x = -INFINITY;
            const bool near = (c.window < 0 || t - j <= c.window) && (!c.documents || j >= start[row]);
            if (near || j < c.prefix) {
              x = 0;
              for (int64_t d = 0; d < c.depth; d++)
                x += q[(row * H + h) * c.depth + d] * k[((c.cu[i] + j) * K + h / G) * c.depth + d];
              x *= scale;
              if (c.softcap) x = cap * std::tanh(x / cap);
              if (c.slopes) x -= slopes[h] * (double)(t - j);
            }
            score.push_back(x), top = std::max(top, x);
          }
          double sum = 0;
          for (double x : score) sum += std::exp(x - top);
          const double l = top + std::log(sum), s = sink[h];
          lse[row * H + h] =
              c.function == SFX_SINK_SIGMOID ? std::max(l, s) + std::log1p(std::exp(-std::fabs(l - s))) : l;
          if (c.dlse) total += dlse[row * H + h] * lse[row * H + h];
          for (int64_t d = 0; d < c.depth; d++) {
            double o = 0;
            for (int64_t j = 0; j <= t; j++) o += std::exp(score[j] - l) * v[((c.cu[i] + j) * K + h / G) * c.depth + d];
            o *= f(l, s);
            out[(row * H + h) * c.depth + d] = o, total += o * dout[(row * H + h) * c.depth + d];
          }
        }
    return total;
  }
};

uint16_t rounded(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
float widened(uint16_t x) {
  const uint32_t bits = (uint32_t)x << 16;
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}

// Documents of uneven length; within a segment their first position never falls.
Ints documents(const Ints& cu, Random& r) {
  Ints start((size_t)cu.back());
  for (size_t i = 0; i + 1 < cu.size(); i++)
    for (int32_t at = cu[i], first = 0; at < cu[i + 1]; at++) {
      if (r.below(40) == 0) first = at - cu[i];
      start[at] = first;
    }
  return start;
}

void one(const Variant& c, bool half) {
  const int64_t n = c.cu.back(), D = c.depth, segments = (int64_t)c.cu.size() - 1;
  section(std::string("attention variant ") + c.name + (half ? ", bf16" : ""));
  Random r((uint64_t)(n * 7 + D + c.function));
  // Exact in bf16, so that both storages have one reference.
  const auto inputs = [&](int64_t count, double scale) {
    Floats x = r.normals(count, scale);
    for (float& f : x) f = widened(rounded(f));
    return x;
  };
  const Floats q = inputs(n * H * D, 1.5), k = inputs(n * K * D, 1), v = inputs(n * K * D, 1),
               dout = inputs(n * H * D, 1), sink = r.normals(H), dlse = r.normals(n * H);
  const Floats slopes = {0.5f, 0.25f, 0.125f, 0.0625f, 0.03f, 0.01f};
  const Ints start = documents(c.cu, r);
  const float cap = 1.7f, scale = (float)(1 / std::sqrt((double)D));
  const sfx_attention_variant variant = {c.documents ? start.data() : nullptr, c.slopes ? slopes.data() : nullptr,
                                         c.softcap ? cap : 0.0f, c.function, c.dlse ? dlse.data() : nullptr};
  const sfx_attention_mask mask = {c.window, c.prefix, scale, &variant};
  const auto halves = [](const Floats& x) {
    Array<uint16_t> h;
    for (float f : x) h.push_back(rounded(f));
    return h;
  };
  const auto hq = halves(q), hk = halves(k), hv = halves(v), hdo = halves(dout);
  const Floats got = everywhere([&](const sfx_backend& b, sfx_stream* s) {
    Floats out = poison(n * H * D), lse = poison(n * H), dq = poison(n * H * D), dk = poison(n * K * D),
           dv = poison(n * K * D), ds(H);
    Array<uint16_t> ho(out.size(), 0x7fff), hdq(dq.size(), 0x7fff), hdk(dk.size(), 0x7fff), hdv(dv.size(), 0x7fff);
    const auto at = [&](const Floats& f, const Array<uint16_t>& h, std::initializer_list<int64_t> shape) {
      sfx_tensor t = tensor(f, shape);
      if (half) t.data = const_cast<uint16_t*>(h.data()), t.dtype = SFX_BF16;
      return t;
    };
    sfx_tensor tq = at(q, hq, {n, H, D}), tk = at(k, hk, {n, K, D}), tv = at(v, hv, {n, K, D}),
               to = at(out, ho, {n, H, D}), tdo = at(dout, hdo, {n, H, D}), tdq = at(dq, hdq, {n, H, D}),
               tdk = at(dk, hdk, {n, K, D}), tdv = at(dv, hdv, {n, K, D});
    ok(b.attention_forward(s, &tq, &tk, &tv, sink.data(), c.cu.data(), segments, &mask, &to, lse.data()), b);
    ok(b.attention_backward(s, &tdo, &tq, &tk, &tv, sink.data(), &to, lse.data(), c.cu.data(), segments, &mask, &tdq,
                            &tdk, &tdv, ds.data()),
       b);
    if (half)
      for (auto [f, h] : {std::pair{&out, &ho}, {&dq, &hdq}, {&dk, &hdk}, {&dv, &hdv}})
        for (size_t i = 0; i < f->size(); i++) (*f)[i] = widened((*h)[i]);
    return joined({&out, &lse, &dq, &dk, &dv, &ds});
  });
  Reference ref{c,     doubles(q),      doubles(k),  doubles(v),   doubles(sink), Doubles(n * H * D), Doubles(n * H),
                start, doubles(slopes), (double)cap, (double)scale};
  const auto loss = [&] { return ref.loss(dout, dlse); };
  loss();
  size_t at = 0;
  close(got, at, ref.out, half ? 5e-3 : 3e-6, "out"), at += ref.out.size();
  close(got, at, ref.lse, 2e-6, "lse"), at += ref.lse.size();
  const double tolerance = half ? 2e-2 : 1e-3;
  differences(ref.q, loss, got.data() + at, tolerance, "dq", 10), at += ref.q.size();
  differences(ref.k, loss, got.data() + at, tolerance, "dk", 10), at += ref.k.size();
  differences(ref.v, loss, got.data() + at, tolerance, "dv", 10), at += ref.v.size();
  differences(ref.sink, loss, got.data() + at, tolerance, "dsink", 6);
}

}  // namespace

void test_attention_variants() {
  const Ints packed = {0, 70, 70, 141}, lone = {0, 150};
  const Variant variants[] = {
      {"plain", false, false, false, false, SFX_SINK_SIGMOID, -1, 0, 16, packed},
      {"documents", true, false, false, false, SFX_SINK_SIGMOID, -1, 0, 16, lone},
      {"documents behind a prefix", true, false, false, false, SFX_SINK_SIGMOID, -1, 9, 16, lone},
      {"documents in a window", true, false, false, false, SFX_SINK_SIGMOID, 13, 3, 17, packed},
      {"softcap", false, false, true, false, SFX_SINK_SIGMOID, -1, 0, 16, packed},
      {"ALiBi", false, true, false, false, SFX_SINK_SIGMOID, -1, 0, 20, packed},
      {"dlse", false, false, false, true, SFX_SINK_SIGMOID, 30, 0, 16, lone},
      {"gate", false, false, false, false, SFX_SINK_GATE, -1, 0, 16, packed},
      {"gate and dlse", false, false, false, true, SFX_SINK_GATE, 5, 0, 16, packed},
      {"saturation", false, false, false, false, SFX_SINK_SATURATION, -1, 0, 16, packed},
      {"saturation and dlse", false, false, false, true, SFX_SINK_SATURATION, 20, 2, 24, lone},
      {"all", true, true, true, true, SFX_SINK_SATURATION, 40, 5, 31, packed},
      {"wide heads", true, true, true, true, SFX_SINK_SIGMOID, -1, 0, 256, {0, 90}},
      {"odd heads", false, true, true, false, SFX_SINK_SIGMOID, 60, 1, 129, {0, 40, 100}},
  };
  for (const Variant& c : variants) one(c, false);
  for (size_t i : {0, 2, 11}) one(variants[i], true);
}
