// Sink attention: float64 references, finite differences, packed against paged, and rows that must not feel their
// neighbours.
#include "harness.h"

namespace {

struct Case {
  Ints cu;
  int64_t heads, kv_heads, depth, window, prefix;
  int sinks;  // 0 none, 1 some
};

bool sees(const Case& c, int64_t q, int64_t k) { return k <= q && (c.window < 0 || q - k <= c.window || k < c.prefix); }

struct Reference {
  const Case& c;
  Doubles q, k, v, sink, out, lse;
  double loss(const Floats& dout) {
    const double scale = 1 / std::sqrt((double)c.depth);
    const int64_t H = c.heads, K = c.kv_heads, D = c.depth, G = H / K;
    double total = 0;
    for (size_t s = 0; s + 1 < c.cu.size(); s++)
      for (int64_t t = c.cu[s]; t < c.cu[s + 1]; t++)
        for (int64_t h = 0; h < H; h++) {
          Doubles score;
          double top = sink.empty() ? -INFINITY : sink[h];
          for (int64_t j = c.cu[s]; j <= t; j++) {
            double x = -INFINITY;
            if (sees(c, t - c.cu[s], j - c.cu[s])) {
              x = 0;
              for (int64_t d = 0; d < D; d++) x += q[(t * H + h) * D + d] * k[(j * K + h / G) * D + d];
              x *= scale;
            }
            score.push_back(x), top = std::max(top, x);
          }
          double sum = sink.empty() ? 0 : std::exp(sink[h] - top);
          for (double x : score) sum += std::exp(x - top);
          lse[t * H + h] = top + std::log(sum);
          for (int64_t d = 0; d < D; d++) {
            double o = 0;
            for (size_t j = 0; j < score.size(); j++)
              o += std::exp(score[j] - lse[t * H + h]) * v[((c.cu[s] + (int64_t)j) * K + h / G) * D + d];
            out[(t * H + h) * D + d] = o, total += o * dout[(t * H + h) * D + d];
          }
        }
    return total;
  }
};

void one(const Case& c) {
  const int64_t n = c.cu.back(), H = c.heads, K = c.kv_heads, D = c.depth, segments = (int64_t)c.cu.size() - 1;
  section("attention n=" + std::to_string(n) + " H=" + std::to_string(H) + "/" + std::to_string(K) +
          " D=" + std::to_string(D) + " window=" + std::to_string(c.window) + " prefix=" + std::to_string(c.prefix));
  Random r((uint64_t)(n * 31 + H * 7 + D + c.window));
  const Floats q = r.normals(n * H * D, 1.5), k = r.normals(n * K * D), v = r.normals(n * K * D),
               dout = r.normals(n * H * D);
  Floats sink = c.sinks ? r.normals(H) : Floats();
  const Floats ds0(H);
  const sfx_attention_mask mask = {c.window, c.prefix, (float)(1 / std::sqrt((double)D))};
  const Floats got = everywhere([&](const sfx_backend& b, sfx_stream* s) {
    Floats out = poison(n * H * D), lse = poison(n * H), dq = poison(n * H * D), dk = poison(n * K * D),
           dv = poison(n * K * D), ds = ds0;
    sfx_tensor tq = tensor(q, {n, H, D}), tk = tensor(k, {n, K, D}), tv = tensor(v, {n, K, D}),
               to = tensor(out, {n, H, D}), tdo = tensor(dout, {n, H, D});
    sfx_tensor tdq = tensor(dq, {n, H, D}), tdk = tensor(dk, {n, K, D}), tdv = tensor(dv, {n, K, D});
    const float* ps = c.sinks ? sink.data() : nullptr;
    ok(b.attention_forward(s, &tq, &tk, &tv, ps, c.cu.data(), segments, &mask, &to, lse.data()), b);
    ok(b.attention_backward(s, &tdo, &tq, &tk, &tv, ps, &to, lse.data(), c.cu.data(), segments, &mask, &tdq, &tdk, &tdv,
                            c.sinks ? ds.data() : nullptr),
       b);
    return joined({&out, &lse, &dq, &dk, &dv, &ds});
  });
  Reference ref{c, doubles(q), doubles(k), doubles(v), doubles(sink), Doubles(n * H * D), Doubles(n * H)};
  const auto loss = [&] { return ref.loss(dout); };
  loss();
  size_t at = 0;
  close(got, at, ref.out, 3e-6, "out"), at += ref.out.size();
  close(got, at, ref.lse, 1e-6, "lse"), at += ref.lse.size();
  if (n > 150) return;
  differences(ref.q, loss, got.data() + at, 1e-3, "dq", 8), at += ref.q.size();
  differences(ref.k, loss, got.data() + at, 1e-3, "dk", 8), at += ref.k.size();
  differences(ref.v, loss, got.data() + at, 1e-3, "dv", 8), at += ref.v.size();
  if (c.sinks) differences(ref.sink, loss, got.data() + at, 1e-3, "dsink", 8);
}

// A pool of pages full of NaN; sequences own scattered pages. Rows arrive in chunks of uneven size, mixed over
// sequences.
void paged(const Case& c, int64_t tokens) {
  const int64_t n = c.cu.back(), H = c.heads, K = c.kv_heads, D = c.depth, segments = (int64_t)c.cu.size() - 1;
  section("paged n=" + std::to_string(n) + " page=" + std::to_string(tokens) + " D=" + std::to_string(D) +
          " window=" + std::to_string(c.window));
  Random r((uint64_t)(n + tokens + D));
  const Floats q = r.normals(n * H * D, 1.5), k = r.normals(n * K * D), v = r.normals(n * K * D), sink = r.normals(H);
  const sfx_attention_mask mask = {c.window, c.prefix, (float)(1 / std::sqrt((double)D))};
  everywhere([&](const sfx_backend& b, sfx_stream* s) {
    Floats out = poison(n * H * D), lse = poison(n * H);
    sfx_tensor tq = tensor(q, {n, H, D}), tk = tensor(k, {n, K, D}), tv = tensor(v, {n, K, D}),
               to = tensor(out, {n, H, D});
    ok(b.attention_forward(s, &tq, &tk, &tv, sink.data(), c.cu.data(), segments, &mask, &to, lse.data()), b);
    int64_t most = 0, pages = 0;
    for (int64_t i = 0; i < segments; i++)
      most = std::max<int64_t>(most, (c.cu[i + 1] - c.cu[i] + tokens - 1) / tokens);
    Ints table(segments * most, -1);
    for (int64_t j = 0; j < most; j++)
      for (int64_t i = segments; i-- > 0;)
        if (j * tokens < c.cu[i + 1] - c.cu[i]) table[i * most + j] = (int32_t)pages++;
    Floats keys = poison(pages * K * D * tokens), values = poison(pages * K * D * tokens);
    Random chunk(4);
    Ints done(segments);
    for (bool more = true; more;) {
      more = false;
      Ints sequence, position;
      Floats cq, ck, cv;
      for (int64_t i = 0; i < segments; i++) {
        const int64_t left = c.cu[i + 1] - c.cu[i] - done[i],
                      take = std::min<int64_t>(left, chunk.below(4) ? chunk.below(3) : chunk.below(70));
        for (int64_t j = 0; j < take; j++) {
          const int64_t t = c.cu[i] + done[i];
          sequence.push_back((int32_t)i), position.push_back(done[i]++);
          cq.insert(cq.end(), q.begin() + t * H * D, q.begin() + (t + 1) * H * D);
          ck.insert(ck.end(), k.begin() + t * K * D, k.begin() + (t + 1) * K * D);
          cv.insert(cv.end(), v.begin() + t * K * D, v.begin() + (t + 1) * K * D);
        }
        more = more || done[i] < c.cu[i + 1] - c.cu[i];
      }
      const int64_t rows = (int64_t)sequence.size();
      Floats got = poison(rows * H * D);
      const sfx_paged p = {rows,
                           segments,
                           most * tokens,
                           sequence.data(),
                           position.data(),
                           table.data(),
                           most,
                           tokens,
                           keys.data(),
                           values.data(),
                           K};
      sfx_tensor pq = tensor(cq, {rows, H, D}), pk = tensor(ck, {rows, K, D}), pv = tensor(cv, {rows, K, D}),
                 po = tensor(got, {rows, H, D});
      ok(b.kv_write(s, &pk, &pv, &p), b);
      ok(b.attention_paged(s, &pq, sink.data(), &p, &mask, &po), b);
      for (int64_t i = 0; i < rows; i++) {
        const float* expected = out.data() + (c.cu[sequence[i]] + position[i]) * H * D;
        if (!check(same_attention(got.data() + i * H * D, expected, (size_t)(H * D)),
                   "paged differs from packed at position " + std::to_string(position[i])))
          return out;
      }
    }
    return out;
  });
}

// NaN in one segment, or in a key outside a row's window, must not reach that row; a neighbour changes no bit.
void isolation() {
  section("attention isolation");
  const int64_t H = 4, K = 2, D = 16, n = 300;
  Random r(8);
  const Floats q = r.normals(n * H * D), k = r.normals(n * K * D), v = r.normals(n * K * D), sink = r.normals(H);
  const sfx_attention_mask mask = {20, 0, 0.25f};
  const Ints cu = {0, 130, 130, 300};
  everywhere([&](const sfx_backend& b, sfx_stream* s) {
    const auto run = [&](const Floats& kk, const Floats& vv, const Ints& segments) {
      Floats out = poison(n * H * D), lse = poison(n * H);
      sfx_tensor tq = tensor(q, {n, H, D}), tk = tensor(kk, {n, K, D}), tv = tensor(vv, {n, K, D}),
                 to = tensor(out, {n, H, D});
      ok(b.attention_forward(s, &tq, &tk, &tv, sink.data(), segments.data(), (int64_t)segments.size() - 1, &mask, &to,
                             lse.data()),
         b);
      return out;
    };
    const Floats clean = run(k, v, cu);
    Floats bad_k = k, bad_v = v;
    for (int64_t i = 200 * K * D; i < 201 * K * D; i++) bad_k[i] = NAN, bad_v[i] = NAN;
    const Floats dirty = run(bad_k, bad_v, cu);
    bool same = true, touched = true;
    for (int64_t t = 0; t < n; t++) {
      const bool equal = std::memcmp(&clean[t * H * D], &dirty[t * H * D], (size_t)(H * D) * 4) == 0;
      if (t < 200 || t > 220)
        same = same && equal;
      else
        touched = touched && !equal;
    }
    check(same, "a NaN key reaches rows that cannot see it");
    check(touched, "a NaN key is visible where it must be");
    const Floats alone = run(k, v, {0, 130});
    check(std::memcmp(alone.data(), clean.data(), (size_t)(130 * H * D) * 4) == 0,
          "a segment depends on its neighbours");
    return clean;
  });
}

void extremes() {
  section("attention extremes");
  const int64_t H = 6, K = 2, D = 8, n = 70;
  Random r(2);
  const Floats q = r.normals(n * H * D, 30), k = r.normals(n * K * D, 30), v = r.normals(n * K * D),
               dout = r.normals(n * H * D);
  const Floats sink = {2e38f, -INFINITY, INFINITY, 80, -30, 0};
  const sfx_attention_mask mask = {-1, 0, 0.35f};
  const Ints cu = {0, (int32_t)n};
  everywhere([&](const sfx_backend& b, sfx_stream* s) {
    Floats out = poison(n * H * D), lse = poison(n * H), dq = poison(n * H * D), dk = poison(n * K * D),
           dv = poison(n * K * D), ds(H);
    sfx_tensor tq = tensor(q, {n, H, D}), tk = tensor(k, {n, K, D}), tv = tensor(v, {n, K, D}),
               to = tensor(out, {n, H, D}), tdo = tensor(dout, {n, H, D});
    sfx_tensor tdq = tensor(dq, {n, H, D}), tdk = tensor(dk, {n, K, D}), tdv = tensor(dv, {n, K, D});
    ok(b.attention_forward(s, &tq, &tk, &tv, sink.data(), cu.data(), 1, &mask, &to, lse.data()), b);
    ok(b.attention_backward(s, &tdo, &tq, &tk, &tv, sink.data(), &to, lse.data(), cu.data(), 1, &mask, &tdq, &tdk, &tdv,
                            ds.data()),
       b);
    for (const Floats* f : {&out, &dq, &dk, &dv, &ds})
      for (float x : *f)
        if (!check(std::isfinite(x), "all finite")) return out;
    return joined({&out, &dq, &dk, &dv, &ds});
  });
}

}  // namespace

void test_attention() {
  const Case cases[] = {
      {{0, 1}, 1, 1, 16, -1, 0, 1},           {{0, 1}, 2, 1, 5, 0, 0, 0},           {{0, 65}, 4, 2, 64, -1, 0, 1},
      {{0, 40, 40, 141}, 8, 2, 24, 15, 0, 1}, {{0, 3, 150}, 4, 4, 16, 1, 0, 1},     {{0, 140}, 6, 2, 33, 65, 0, 0},
      {{0, 70, 150}, 4, 1, 16, 5, 2, 1},      {{0, 140}, 3, 1, 8, 7, 100, 1},       {{0, 30}, 2, 2, 16, 500, 0, 1},
      {{0, 129}, 2, 1, 16, 0, 0, 1},          {{0, 257, 600}, 4, 2, 32, 127, 0, 1}, {{0, 333}, 50, 1, 16, -1, 0, 1},
  };
  for (const Case& c : cases) one(c);
  for (int64_t tokens : {16, 32, 64}) {
    paged({{0, 40, 40, 190, 191, 330}, 4, 2, 16, -1, 0, 1}, tokens);
    paged({{0, 200, 263, 391}, 6, 2, 24, 30, 0, 1}, tokens);
    paged({{0, 200, 263}, 2, 2, 40, 9, 5, 1}, tokens);
  }
  isolation();
  extremes();
}
