// The fused log-probability head and the sampler: values, gradients, one set of bits for both, and the drawn
// distribution.
#include <algorithm>

#include "harness.h"

namespace {

void head(int64_t n, int64_t h, int64_t V, float temperature) {
  section("linear_logprob n=" + std::to_string(n) + " h=" + std::to_string(h) + " V=" + std::to_string(V));
  Random r((uint64_t)(n + h + V));
  const Floats hidden = r.normals(n * h, 2), w = r.normals(V * h, 1 / std::sqrt((double)h)), dl = r.normals(n),
               de = r.normals(n);
  Ints target(n);
  for (auto& t : target) t = (int32_t)(r.below(5) ? r.below(V) : -1);
  if (n > 1) target[0] = (int32_t)V - 1, target[1] = 0;
  const Floats got = everywhere([&](const sfx_backend& b, sfx_stream* s) {
    Floats logprob = poison(n), entropy = poison(n), lse = poison(n), dh = poison(n * h), dw(V * h);
    sfx_tensor th = tensor(hidden, {n, h}), tw = tensor(w, {V, h}), tdh = tensor(dh, {n, h}), tdw = tensor(dw, {V, h});
    ok(b.linear_logprob_forward(s, &th, &tw, target.data(), temperature, logprob.data(), entropy.data(), lse.data()),
       b);
    ok(b.linear_logprob_backward(s, &th, &tw, target.data(), temperature, lse.data(), entropy.data(), dl.data(),
                                 de.data(), &tdh, &tdw),
       b);
    // Sampling one row at a time and all at once: the same tokens, and the log-probabilities of the training pass.
    Ints token(n, -1), single(n, -1);
    Floats drawn = poison(n), again = poison(n), alone = poison(n);
    std::vector<sfx_sample_options> options((size_t)n);
    for (int64_t i = 0; i < n; i++)
      options[i] = {i % 3 == 2 ? 0.0f : temperature,
                    i % 4 == 1 ? 5 : 0,
                    i % 5 == 3 ? 0.7f : 1.0f,
                    {1, 2, (uint32_t)i, 4},
                    9,
                    i % 7 == 2 ? 0.1f : 0.0f,
                    0,
                    nullptr,
                    0,
                    nullptr,
                    nullptr};
    ok(b.linear_sample(s, &th, &tw, options.data(), token.data(), drawn.data()), b);
    for (int64_t i = 0; i < n; i++) {
      sfx_tensor row = tensor(hidden, {1, h});
      row.data = const_cast<float*>(hidden.data()) + i * h;
      ok(b.linear_sample(s, &row, &tw, &options[i], &single[i], &alone[i]), b);
      ok(b.linear_logprob_forward(s, &row, &tw, &token[i], i % 3 == 2 ? 1.0f : temperature, &again[i], nullptr,
                                  nullptr),
         b);
    }
    check(token == single && same_bits(drawn, alone), "a draw depends on its batch");
    check(same_bits(drawn, again),
          "the sampled log-probability is not that of the training pass: " + first_difference(drawn, again));
    return joined({&logprob, &entropy, &lse, &dh, &dw, &drawn});
  });
  Doubles hd = doubles(hidden), wd = doubles(w), lp(n), en(n);
  const auto loss = [&] {
    double total = 0;
    for (int64_t t = 0; t < n; t++) {
      lp[t] = en[t] = 0;
      if (target[t] < 0) continue;
      Doubles z(V);
      double top = -INFINITY, sum = 0;
      for (int64_t v = 0; v < V; v++) {
        for (int64_t j = 0; j < h; j++) z[v] += hd[t * h + j] * wd[v * h + j];
        z[v] /= temperature, top = std::max(top, z[v]);
      }
      for (double x : z) sum += std::exp(x - top);
      const double lse = top + std::log(sum);
      lp[t] = z[target[t]] - lse;
      for (double x : z) en[t] -= std::exp(x - lse) * (x - lse);
      total += lp[t] * dl[t] + en[t] * de[t];
    }
    return total;
  };
  loss();
  close(got, 0, lp, 2e-6, "logprob");
  close(got, n, en, 5e-6, "entropy");
  if (n * V > 100000) return;
  differences(hd, loss, got.data() + 3 * n, 2e-3, "dhidden", 12);
  differences(wd, loss, got.data() + 3 * n + n * h, 2e-3, "dw", 12);
}

// Gradients must not depend on how the rows are cut into calls.
void splits() {
  section("linear_logprob splits");
  Random r(77);
  const int64_t n = 50, h = 32, V = 300;
  const Floats hidden = r.normals(n * h), w = r.normals(V * h), dl = r.normals(n);
  Ints target(n);
  for (auto& t : target) t = (int32_t)r.below(V);
  everywhere([&](const sfx_backend& b, sfx_stream* s) {
    Floats lp(n), lse(n), en(n), dh(n * h), dh2(n * h), dw(V * h), dw2(V * h);
    sfx_tensor th = tensor(hidden, {n, h}), tw = tensor(w, {V, h}), tdh = tensor(dh, {n, h}), tdw = tensor(dw, {V, h}),
               tdw2 = tensor(dw2, {V, h});
    ok(b.linear_logprob_forward(s, &th, &tw, target.data(), 1, lp.data(), en.data(), lse.data()), b);
    ok(b.linear_logprob_backward(s, &th, &tw, target.data(), 1, lse.data(), en.data(), dl.data(), nullptr, &tdh, &tdw),
       b);
    for (int64_t from = 0; from < n; from += 17) {
      const int64_t rows = std::min<int64_t>(17, n - from);
      sfx_tensor ph = tensor(hidden, {rows, h}), pdh = tensor(dh2, {rows, h});
      ph.data = const_cast<float*>(hidden.data()) + from * h, pdh.data = dh2.data() + from * h;
      ok(b.linear_logprob_backward(s, &ph, &tw, target.data() + from, 1, lse.data() + from, en.data() + from,
                                   dl.data() + from, nullptr, &pdh, &tdw2),
         b);
    }
    check(same_bits(dh, dh2) && same_bits(dw, dw2), "gradients depend on the split");
    return joined({&dh, &dw});
  });
}

// Frequencies of many draws against the restricted softmax.
void distribution(float temperature, int32_t top_k, float top_p) {
  section("sampler T=" + std::to_string(temperature) + " k=" + std::to_string(top_k) + " p=" + std::to_string(top_p));
  const sfx_backend* b = places()[0].backend;
  sfx_stream* s = b->stream_create(1);
  const int64_t V = 12, h = 4;
  Random r(6);
  const Floats row = r.normals(h), w = r.normals(V * h);
  Floats hidden;
  std::vector<sfx_sample_options> options;
  for (int64_t i = 0; i < draws; i++) {
    hidden.insert(hidden.end(), row.begin(), row.end());
    options.push_back({temperature,
                       top_k,
                       top_p,
                       {7, 1, (uint32_t)(i / 100), 3},
                       (uint32_t)(i % 100),
                       0,
                       0,
                       nullptr,
                       0,
                       nullptr,
                       nullptr});
  }
  Ints token(draws);
  sfx_tensor th = tensor(hidden, {draws, h}), tw = tensor(w, {V, h});
  ok(b->linear_sample(s, &th, &tw, options.data(), token.data(), nullptr), *b);
  b->stream_destroy(s);
  std::vector<std::pair<double, int>> p;
  double sum = 0;
  for (int64_t v = 0; v < V; v++) {
    double z = 0;
    for (int64_t j = 0; j < h; j++) z += (double)row[j] * w[v * h + j];
    p.push_back({-std::exp(z / temperature), (int)v}), sum += std::exp(z / temperature);
  }
  std::sort(p.begin(), p.end());
  Doubles expected(V);
  double kept = 0, cumulated = 0, all = 0;
  const int64_t limit = top_k > 0 ? top_k : V;
  for (int64_t i = 0; i < limit; i++) all += -p[i].first;
  for (int64_t i = 0; i < limit; i++) {
    if (i > 0 && top_p < 1 && cumulated >= top_p * all) break;
    cumulated += -p[i].first;
    expected[p[i].second] = -p[i].first, kept += -p[i].first;
  }
  double chi = 0;
  int free = -1;
  Doubles seen(V);
  for (int32_t t : token) seen[t]++;
  for (int64_t v = 0; v < V; v++) {
    const double e = expected[v] / kept * draws;
    if (e == 0)
      check(seen[v] == 0, "a token outside the restriction was drawn");
    else
      chi += (seen[v] - e) * (seen[v] - e) / e, free++;
  }
  check(chi < free + 5 * std::sqrt(2.0 * free) + 5,
        "chi square " + std::to_string(chi) + " with " + std::to_string(free));
}

}  // namespace

void test_vocabulary() {
  head(1, 8, 1, 1);
  head(7, 16, 30, 1);
  head(20, 24, 256, 0.7f);
  head(33, 40, 777, 1.3f);
  head(150, 16, 3001, 1);
  splits();
  distribution(1, 0, 1), distribution(0.6f, 0, 1), distribution(1, 3, 1), distribution(1, 0, 0.6f),
      distribution(1.5f, 6, 0.8f);
}
