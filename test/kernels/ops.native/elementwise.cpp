// norm, rope, embedding, router, adamw and the sum of squares.
#include "harness.h"

namespace {

void norm(int64_t n, int64_t h) {
  section("rms_norm n=" + std::to_string(n) + " h=" + std::to_string(h));
  Random r((uint64_t)(n + 7 * h));
  const Floats x = r.normals(n * h), w = r.normals(h), dy = r.normals(n * h), dx0 = r.normals(n * h), dw0(h);
  const float eps = 1e-5f;
  const Floats got = everywhere([&](const sfx_backend& k, sfx_stream* s) {
    Floats y = poison(n * h), rstd = poison(n), dx = dx0, dw = dw0, again = poison(n * h), dw2 = dw0;
    sfx_tensor tx = tensor(x, {n, h}), tw = tensor(w, {h}), ty = tensor(y, {n, h}), tdy = tensor(dy, {n, h}),
               tdx = tensor(dx, {n, h}), tdw = tensor(dw, {h});
    ok(k.rms_norm_forward(s, &tx, &tw, eps, &ty, rstd.data()), k);
    ok(k.rms_norm_backward(s, &tdy, &tx, &tw, rstd.data(), &tdx, &tdw), k);
    sfx_tensor tdw2 = tensor(dw2, {h});
    for (int64_t i = 0; i < n; i++) {  // row by row
      sfx_tensor a = tensor(x, {1, h}), d = tensor(dy, {1, h}), b = tensor(again, {1, h});
      a.data = const_cast<float*>(x.data()) + i * h, b.data = again.data() + i * h,
      d.data = const_cast<float*>(dy.data()) + i * h;
      Floats unused(h);
      sfx_tensor tu = tensor(unused, {1, h});
      ok(k.rms_norm_forward(s, &a, &tw, eps, &b, nullptr), k);
      ok(k.rms_norm_backward(s, &d, &a, &tw, rstd.data() + i, &tu, &tdw2), k);
    }
    check(same_bits(y, again) && same_bits(dw, dw2), "depends on the batch");
    return joined({&y, &dx, &dw});
  });
  Doubles xd = doubles(x), wd = doubles(w), y(n * h);
  const auto loss = [&] {
    double total = 0;
    for (int64_t t = 0; t < n; t++) {
      double sum = 0;
      for (int64_t j = 0; j < h; j++) sum += xd[t * h + j] * xd[t * h + j];
      const double rstd = 1 / std::sqrt(sum / h + (double)eps);
      for (int64_t j = 0; j < h; j++)
        y[t * h + j] = xd[t * h + j] * rstd * wd[j], total += y[t * h + j] * dy[t * h + j];
    }
    return total;
  };
  loss();
  close(got, 0, y, 1e-6, "y");
  Floats dx(got.begin() + n * h, got.begin() + 2 * n * h);
  for (size_t i = 0; i < dx.size(); i++) dx[i] -= dx0[i];
  differences(xd, loss, dx.data(), 1e-3, "dx");
  differences(wd, loss, got.data() + 2 * n * h, 1e-3, "dw");
}

void swiglu(int64_t n, int64_t width) {
  section("swiglu I=" + std::to_string(width));
  Random r((uint64_t)(n * 31 + width));
  Floats gate = r.normals(n * width);
  const Floats up = r.normals(n * width), dy = r.normals(n * width);
  gate[0] = 60, gate[n * width - 1] = -95;  // where the sigmoid is 1 and 0
  const Floats got = everywhere([&](const sfx_backend& k, sfx_stream* s) {
    Floats y = poison(n * width), dgate = poison(n * width), dup = poison(n * width);
    sfx_tensor tg = tensor(gate, {n, width}), tu = tensor(up, {n, width}), ty = tensor(y, {n, width}),
               tdy = tensor(dy, {n, width}), tdg = tensor(dgate, {n, width}), tdu = tensor(dup, {n, width});
    ok(k.swiglu_forward(s, &tg, &tu, &ty), k);
    ok(k.swiglu_backward(s, &tdy, &tg, &tu, &tdg, &tdu), k);
    return joined({&y, &dgate, &dup});
  });
  Doubles g = doubles(gate), u = doubles(up), y(n * width);
  const auto loss = [&] {
    double total = 0;
    for (int64_t i = 0; i < n * width; i++) y[i] = g[i] / (1 + std::exp(-g[i])) * u[i], total += y[i] * dy[i];
    return total;
  };
  loss();
  close(got, 0, y, 1e-6, "y");
  differences(g, loss, got.data() + n * width, 1e-3, "dgate");
  differences(u, loss, got.data() + 2 * n * width, 1e-3, "dup");
}

void rotary(int64_t n, int64_t heads, int64_t depth) {
  section("rope D=" + std::to_string(depth));
  Random r((uint64_t)depth);
  const int64_t half = depth / 2, positions = 50;
  Floats cosine(positions * half), sine(positions * half);
  for (int64_t i = 0; i < positions * half; i++)
    cosine[i] = (float)std::cos(0.1 * i), sine[i] = (float)std::sin(0.1 * i);
  const Floats x = r.normals(n * heads * depth);
  Ints at(n);
  for (auto& p : at) p = (int32_t)r.below(positions);
  const Floats got = everywhere([&](const sfx_backend& k, sfx_stream* s) {
    Floats y = x;
    sfx_tensor ty = tensor(y, {n, heads, depth}), tc = tensor(cosine, {positions, half}),
               ts = tensor(sine, {positions, half});
    ok(k.rope(s, &ty, at.data(), &tc, &ts, 0), k);
    Floats back = y;
    sfx_tensor tb = tensor(back, {n, heads, depth});
    ok(k.rope(s, &tb, at.data(), &tc, &ts, 1), k);
    return joined({&y, &back});
  });
  Doubles y(x.size());
  for (int64_t t = 0; t < n; t++)
    for (int64_t h = 0; h < heads; h++)
      for (int64_t j = 0; j < half; j++) {
        const double a = x[(t * heads + h) * depth + j], b = x[(t * heads + h) * depth + j + half];
        const double c = cosine[at[t] * half + j], d = sine[at[t] * half + j];
        y[(t * heads + h) * depth + j] = a * c - b * d, y[(t * heads + h) * depth + j + half] = b * c + a * d;
      }
  close(got, 0, y, 1e-6, "rotated");
  close(got, y.size(), doubles(x), 1e-6, "rotated back");
}

void embedding() {
  section("embedding");
  Random r(3);
  const int64_t V = 11, h = 37, n = 60;
  const Floats table = r.normals(V * h), dx = r.normals(n * h);
  Ints ids(n);
  for (auto& i : ids) i = (int32_t)r.below(V);
  const Floats got = everywhere([&](const sfx_backend& k, sfx_stream* s) {
    Floats x = poison(n * h), dt(V * h);
    sfx_tensor tt = tensor(table, {V, h}), tx = tensor(x, {n, h}), tdx = tensor(dx, {n, h}), tdt = tensor(dt, {V, h});
    ok(k.embedding_forward(s, &tt, ids.data(), &tx), k);
    ok(k.embedding_backward(s, &tdx, ids.data(), &tdt), k);
    Ints bad = {(int32_t)V};
    sfx_tensor row = tensor(x, {1, h});
    check(k.embedding_forward(s, &tt, bad.data(), &row) == SFX_BAD_ARGUMENT, "an id outside is refused");
    return joined({&x, &dt});
  });
  Doubles x(n * h), dt(V * h);
  for (int64_t t = 0; t < n; t++)
    for (int64_t j = 0; j < h; j++) x[t * h + j] = table[ids[t] * h + j], dt[ids[t] * h + j] += dx[t * h + j];
  close(got, 0, x, 0, "x");
  close(got, x.size(), dt, 1e-6, "dtable");
}

void router(int64_t experts, int32_t top_k) {
  section("router E=" + std::to_string(experts) + " k=" + std::to_string(top_k));
  Random r((uint64_t)experts);
  const int64_t n = 40;
  Floats logits = r.normals(n * experts);
  for (int64_t e = 0; e < experts; e++) logits[e] = 1.0f;  // ties: the lowest ids
  const Floats dw = r.normals(n * top_k);
  Ints chosen(n * top_k);
  const Floats got = everywhere([&](const sfx_backend& k, sfx_stream* s) {
    Ints index(n * top_k, -1);
    Floats weight = poison(n * top_k), dl = poison(n * experts), ids(n * top_k);
    sfx_tensor tl = tensor(logits, {n, experts}), tdl = tensor(dl, {n, experts});
    ok(k.router_forward(s, &tl, top_k, index.data(), weight.data()), k);
    ok(k.router_backward(s, dw.data(), index.data(), weight.data(), top_k, &tdl), k);
    for (size_t i = 0; i < ids.size(); i++) ids[i] = (float)index[i];
    chosen = index;
    return joined({&weight, &dl, &ids});
  });
  for (int32_t j = 0; j < top_k; j++) check(chosen[j] == j, "ties go to the lower id");
  Doubles ld = doubles(logits), w(n * top_k);
  const auto loss = [&] {
    double total = 0;
    for (int64_t t = 0; t < n; t++) {
      double sum = 0;
      for (int32_t j = 0; j < top_k; j++) sum += std::exp(ld[t * experts + chosen[t * top_k + j]]);
      for (int32_t j = 0; j < top_k; j++)
        w[t * top_k + j] = std::exp(ld[t * experts + chosen[t * top_k + j]]) / sum,
                      total += w[t * top_k + j] * dw[t * top_k + j];
    }
    return total;
  };
  loss();
  close(got, 0, w, 1e-6, "weights");
  for (int64_t t = 0; t < n; t++)
    for (int32_t j = 0; j + 1 < top_k; j++)
      check(logits[t * experts + chosen[t * top_k + j]] >= logits[t * experts + chosen[t * top_k + j + 1]],
            "descending");
  differences(ld, loss, got.data() + n * top_k, 1e-3, "dlogits", 200);
}

// The load-balancing loss E sum f P, with f held fixed, and its two halves over a batch in one piece and in two.
void balance(int64_t n, int64_t experts, int32_t top_k) {
  section("router balance n=" + std::to_string(n) + " E=" + std::to_string(experts));
  Random r((uint64_t)(n + experts));
  const Floats logits = r.normals(n * experts, 2), share = r.normals(experts), d0 = r.normals(n * experts, 0.01);
  Ints index(n * top_k);
  for (auto& i : index) i = (int32_t)r.below(experts);
  const float factor = 0.3f;
  const Floats got = everywhere([&](const sfx_backend& k, sfx_stream* s) {
    Array<double> sums(2 * experts, 0.5);
    Floats d = d0;
    sfx_tensor tl = tensor(logits, {n, experts}), td = tensor(d, {n, experts});
    ok(k.router_balance(s, &tl, index.data(), top_k, sums.data()), k);
    ok(k.router_balance_backward(s, &tl, share.data(), factor, &td), k);
    Floats values(2 * experts), bits(4 * experts);
    for (size_t i = 0; i < sums.size(); i++) values[i] = (float)sums[i];
    std::memcpy(bits.data(), sums.data(), sums.size() * 8);
    return joined({&values, &d, &bits});
  });
  Doubles l = doubles(logits), sums(2 * experts, 0.5);
  for (int32_t i : index) sums[i] += 1;
  const auto loss = [&] {
    double total = 0;
    for (int64_t t = 0; t < n; t++) {
      double all = 0;
      for (int64_t e = 0; e < experts; e++) all += std::exp(l[t * experts + e]);
      for (int64_t e = 0; e < experts; e++) total += factor * share[e] * std::exp(l[t * experts + e]) / all;
    }
    return total;
  };
  for (int64_t t = 0; t < n; t++) {
    double all = 0;
    for (int64_t e = 0; e < experts; e++) all += std::exp(l[t * experts + e]);
    for (int64_t e = 0; e < experts; e++) sums[experts + e] += std::exp(l[t * experts + e]) / all;
  }
  close(got, 0, sums, 1e-6, "counts and probabilities");
  Floats d(got.begin() + 2 * experts, got.begin() + 2 * experts + n * experts);
  for (size_t i = 0; i < d.size(); i++) d[i] -= d0[i];
  differences(l, loss, d.data(), 1e-3, "dlogits", 200);
}

void optimiser(int64_t count) {
  section("adamw " + std::to_string(count));
  Random r((uint64_t)count);
  const Floats p = r.normals(count), g = r.normals(count), m0 = r.normals(count, 0.1);
  Floats v0 = r.normals(count, 0.1);
  for (auto& x : v0) x *= x;
  sfx_adamw_options o = {1e-3f, 0.9f, 0.999f, 1e-8f, 0.1f, 0.5f, 0.271f, 0.003f};
  const Floats got = everywhere([&](const sfx_backend& k, sfx_stream* s) {
    Floats m = m0, v = v0, out = poison(count);
    ok(k.adamw(s, p.data(), g.data(), m.data(), v.data(), count, &o, out.data()), k);
    Floats same = p, m2 = m0, v2 = v0;
    ok(k.adamw(s, same.data(), g.data(), m2.data(), v2.data(), count, &o, same.data()), k);
    check(same_bits(same, out), "in place");
    double sum = -1;
    ok(k.sum_squares(s, g.data(), count, &sum), k);
    double expected = 0;
    for (float x : g) expected += (double)x * x;
    check(std::fabs(sum - expected) <= 1e-12 * (expected + 1), "sum of squares");
    Floats bits(2);
    std::memcpy(bits.data(), &sum, 8);
    return joined({&out, &m, &v, &bits});
  });
  Doubles out(count);
  for (int64_t i = 0; i < count; i++) {
    const double grad = 0.5 * g[i], m = 0.9 * m0[i] + 0.1 * grad, v = 0.999 * v0[i] + 0.001 * grad * grad;
    out[i] = p[i] * (1 - 1e-3 * 0.1) - 1e-3 * (m / 0.271) / (std::sqrt(v / 0.003) + 1e-8);
  }
  close(got, 0, out, 1e-6, "parameters");
}

// Other storage: plain storage is adamw to the bit; bf16 parameters round to a neighbour, in the mean to the value;
// 8-bit moments stay near the float ones; what is drawn does not depend on how a tensor is cut.
void stored(int64_t count) {
  section("adamw stored " + std::to_string(count));
  Random r((uint64_t)count);
  const Floats p = r.normals(count), g = r.normals(count);
  sfx_adamw_options o = {1e-3f, 0.9f, 0.999f, 1e-8f, 0.1f, 0.5f, 0.271f, 0.003f};
  Array<uint16_t> half(count);
  Floats widened(count);
  for (int64_t i = 0; i < count; i++) {
    uint32_t bits;
    std::memcpy(&bits, &p[i], 4);
    half[i] = (uint16_t)(bits >> 16), bits &= 0xffff0000u;
    std::memcpy(&widened[i], &bits, 4);
  }
  const int64_t blocks = (count + 255) / 256;
  everywhere([&](const sfx_backend& k, sfx_stream* s) {
    Floats m(count), v(count), m2(count), v2(count), exact(count), again(count);
    ok(k.adamw(s, widened.data(), g.data(), m.data(), v.data(), count, &o, exact.data()), k);
    sfx_adamw_storage plain = {};
    plain.m = m2.data(), plain.v = v2.data();
    ok(k.adamw_stored(s, widened.data(), g.data(), count, &o, &plain, again.data()), k);
    check(same_bits(exact, again) && same_bits(m, m2) && same_bits(v, v2), "plain storage is adamw");

    // Every draw of many keys is one of the two neighbours, and their mean is the value.
    const int draws = count <= 5000 ? 400 : 4;
    Doubles mean(count);
    bool neighbours = true;
    Array<uint16_t> out(count), cut(count);
    for (int d = 0; d < draws; d++) {
      Floats m3(count), v3(count);
      sfx_adamw_storage b = {};
      b.bf16 = 1, b.key[0] = 7, b.key[1] = (uint32_t)d, b.first = 1000, b.m = m3.data(), b.v = v3.data();
      ok(k.adamw_stored(s, half.data(), g.data(), count, &o, &b, out.data()), k);
      for (int64_t i = 0; i < count; i++) {
        uint32_t down, bits = (uint32_t)out[i] << 16;
        std::memcpy(&down, &exact[i], 4);
        down &= 0xffff0000u;
        neighbours = neighbours && (bits == down || bits == down + 0x10000u);
        float x;
        std::memcpy(&x, &bits, 4);
        mean[i] += (double)x / draws;
      }
    }
    check(neighbours, "rounded to a neighbour");
    double bias = 0, step = 0;
    for (int64_t i = 0; i < count; i++) {
      uint32_t bits;
      std::memcpy(&bits, &exact[i], 4);
      const double ulp = std::ldexp(1.0, (int)((bits >> 23) & 255) - 127 - 7);
      bias += (mean[i] - exact[i]) / ulp, step += 1;
    }
    // Of independent errors below one ulp each, the mean over all is below 5 / (2 sqrt(samples)).
    check(std::fabs(bias / step) <= 2.5 / std::sqrt(step * draws) + 1e-6, "unbiased: " + std::to_string(bias / step));
    const int64_t at = count / 3 / 1024 * 1024;
    Floats m4(count), v4(count);
    for (int part = 0; part < 2; part++) {
      const int64_t from = part ? at : 0, n = part ? count - at : at;
      sfx_adamw_storage b = {};
      b.bf16 = 1, b.key[0] = 7, b.key[1] = (uint32_t)draws - 1, b.first = 1000 + from;
      b.m = m4.data() + from, b.v = v4.data() + from;
      ok(k.adamw_stored(s, half.data() + from, g.data() + from, n, &o, &b, cut.data() + from), k);
    }
    check(cut == out, "depends on how the tensor is cut");

    Array<uint8_t> m8(count), v8(count);
    Floats ms(blocks), vs(blocks), p8 = widened, pf = widened, mf(count), vf(count);
    sfx_adamw_storage q = {};
    q.quantized = 1, q.m = m8.data(), q.v = v8.data(), q.m_scale = ms.data(), q.v_scale = vs.data();
    for (int turn = 0; turn < 20; turn++) {
      Floats gt = g;
      for (int64_t i = 0; i < count; i++) gt[i] = g[i] * (float)(1 + 0.5 * std::sin(turn + (double)i));
      ok(k.adamw_stored(s, p8.data(), gt.data(), count, &o, &q, p8.data()), k);
      ok(k.adamw(s, pf.data(), gt.data(), mf.data(), vf.data(), count, &o, pf.data()), k);
    }
    double moved = 0, off = 0;
    for (int64_t i = 0; i < count; i++) moved += std::pow(pf[i] - widened[i], 2), off += std::pow(p8[i] - pf[i], 2);
    check(off <= 0.01 * moved, "8-bit moments: off by " + std::to_string(std::sqrt(off / moved)) + " of the way");
    Floats bits(count);
    for (int64_t i = 0; i < count; i++) bits[i] = (float)(out[i] + 65536.0 * m8[i]) + v8[i] / 256.0f;
    return joined({&p8, &ms, &vs, &bits});
  });
}

}  // namespace

void test_elementwise() {
  for (int64_t h : {1, 16, 40, 128}) norm(h == 1 ? 1 : 70, h);
  for (int64_t i : {1, 16, 37, 96}) swiglu(i == 1 ? 1 : 45, i);
  for (int64_t d : {2, 16, 24, 64}) rotary(33, 3, d);
  embedding();
  router(4, 2), router(1, 1), router(8, 1), router(32, 4), router(6, 6);
  balance(3, 4, 2), balance(700, 32, 4), balance(256, 5, 1), balance(513, 130, 8);
  optimiser(1), optimiser(5000), optimiser(100003);
  stored(1), stored(5000), stored(40007);
}
