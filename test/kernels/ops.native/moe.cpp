// Mixture of experts against float64 and finite differences, and independent of the batch.
#include "harness.h"

namespace {

void one(int64_t n, int64_t h, int64_t I, int64_t E, int32_t top_k, float limit) {
  section("moe n=" + std::to_string(n) + " h=" + std::to_string(h) + " I=" + std::to_string(I) +
          " E=" + std::to_string(E) + " k=" + std::to_string(top_k));
  Random r((uint64_t)(n + h + I + E));
  const Floats x = r.normals(n * h), gu = r.normals(E * h * 2 * I, 1 / std::sqrt((double)h)),
               gub = r.normals(E * 2 * I, 0.3);
  const Floats down = r.normals(E * I * h, 1 / std::sqrt((double)I)), downb = r.normals(E * h, 0.3),
               y0 = r.normals(n * h), dy = r.normals(n * h), dx0 = r.normals(n * h);
  Floats weight(n * top_k);
  Ints index(n * top_k);
  for (int64_t t = 0; t < n; t++) {
    Ints all(E);
    for (int64_t e = 0; e < E; e++) all[e] = (int32_t)e;
    double sum = 0;
    for (int32_t j = 0; j < top_k; j++) {
      std::swap(all[j], all[j + r.below(E - j)]);
      index[t * top_k + j] = all[j];
      sum += weight[t * top_k + j] = (float)(0.1 + r.uniform());
    }
    for (int32_t j = 0; j < top_k; j++) weight[t * top_k + j] /= (float)sum;
  }
  const Floats got = everywhere([&](const sfx_backend& b, sfx_stream* s) {
    Floats y = y0, dx = dx0, dweight = poison(n * top_k), dgu(gu.size()), dgub(gub.size()), ddown(down.size()),
           ddownb(downb.size());
    Floats saved = poison(b.moe_saved_bytes(n, h, I, E, top_k) / 4);
    sfx_tensor tx = tensor(x, {n, h}), tg = tensor(gu, {E, h, 2 * I}), tgb = tensor(gub, {E, 2 * I}),
               td = tensor(down, {E, I, h}), tdb = tensor(downb, {E, h});
    sfx_tensor ty = tensor(y, {n, h}), tdy = tensor(dy, {n, h}), tdx = tensor(dx, {n, h}),
               tdg = tensor(dgu, {E, h, 2 * I}), tdgb = tensor(dgub, {E, 2 * I});
    sfx_tensor tdd = tensor(ddown, {E, I, h}), tddb = tensor(ddownb, {E, h});
    ok(b.moe_forward(s, &tx, index.data(), weight.data(), top_k, &tg, &tgb, &td, &tdb, limit, &ty, saved.data()), b);
    ok(b.moe_backward(s, &tdy, &tx, index.data(), weight.data(), top_k, &tg, &tgb, &td, &tdb, limit, saved.data(), &tdx,
                      dweight.data(), &tdg, &tdgb, &tdd, &tddb),
       b);
    // The same in two parts.
    const int64_t cut = n / 3;
    Floats y2 = y0, dx2 = dx0, dw2 = poison(n * top_k), dgu2(gu.size()), dgub2(gub.size()), ddown2(down.size()),
           ddownb2(downb.size());
    sfx_tensor tdg2 = tensor(dgu2, {E, h, 2 * I}), tdgb2 = tensor(dgub2, {E, 2 * I}), tdd2 = tensor(ddown2, {E, I, h}),
               tddb2 = tensor(ddownb2, {E, h});
    for (int part = 0; part < 2; part++) {
      const int64_t from = part ? cut : 0, rows = part ? n - cut : cut;
      const auto view = [&](Floats& f) {
        sfx_tensor t = tensor(f, {rows, h});
        t.data = f.data() + from * h;
        return t;
      };
      sfx_tensor px = view(const_cast<Floats&>(x)), py = view(y2), pdy = view(const_cast<Floats&>(dy)), pdx = view(dx2);
      Floats unsaved(b.moe_saved_bytes(rows, h, I, E, top_k) / 4 + 1);
      ok(b.moe_forward(s, &px, index.data() + from * top_k, weight.data() + from * top_k, top_k, &tg, &tgb, &td, &tdb,
                       limit, &py, unsaved.data()),
         b);
      ok(b.moe_backward(s, &pdy, &px, index.data() + from * top_k, weight.data() + from * top_k, top_k, &tg, &tgb, &td,
                        &tdb, limit, unsaved.data(), &pdx, dw2.data() + from * top_k, &tdg2, &tdgb2, &tdd2, &tddb2),
         b);
    }
    check(same_bits(y, y2) && same_bits(dx, dx2) && same_bits(dweight, dw2), "rows depend on their batch");
    check(same_bits(dgu, dgu2) && same_bits(dgub, dgub2) && same_bits(ddown, ddown2) && same_bits(ddownb, ddownb2),
          "gradients depend on the split");
    return joined({&y, &dx, &dweight, &dgu, &dgub, &ddown, &ddownb});
  });
  Doubles xd = doubles(x), wd = doubles(weight), gd = doubles(gu), gbd = doubles(gub), dd = doubles(down),
          dbd = doubles(downb), y(n * h);
  const auto loss = [&] {
    double total = 0;
    for (int64_t t = 0; t < n; t++) {
      for (int64_t j = 0; j < h; j++) y[t * h + j] = y0[t * h + j];
      for (int32_t c = 0; c < top_k; c++) {
        const int64_t e = index[t * top_k + c];
        Doubles act(I);
        for (int64_t i = 0; i < I; i++) {
          double gate = gbd[e * 2 * I + 2 * i], up = gbd[e * 2 * I + 2 * i + 1];
          for (int64_t j = 0; j < h; j++)
            gate += xd[t * h + j] * gd[(e * h + j) * 2 * I + 2 * i],
                up += xd[t * h + j] * gd[(e * h + j) * 2 * I + 2 * i + 1];
          gate = std::min(gate, (double)limit), up = std::max(std::min(up, (double)limit), -(double)limit);
          act[i] = (up + 1) * gate / (1 + std::exp(-1.702 * gate));
        }
        for (int64_t j = 0; j < h; j++) {
          double o = dbd[e * h + j];
          for (int64_t i = 0; i < I; i++) o += act[i] * dd[(e * I + i) * h + j];
          y[t * h + j] += wd[t * top_k + c] * o;
        }
      }
      for (int64_t j = 0; j < h; j++) total += y[t * h + j] * dy[t * h + j];
    }
    return total;
  };
  loss();
  size_t at = 0;
  close(got, at, y, 1e-5, "y"), at += y.size();
  Floats dx(got.begin() + at, got.begin() + at + n * h);
  for (size_t i = 0; i < dx.size(); i++) dx[i] -= dx0[i];
  differences(xd, loss, dx.data(), 2e-3, "dx"), at += dx.size();
  differences(wd, loss, got.data() + at, 2e-3, "dweight"), at += wd.size();
  differences(gd, loss, got.data() + at, 2e-3, "dgate_up", 60), at += gd.size();
  differences(gbd, loss, got.data() + at, 2e-3, "dgate_up_bias", 60), at += gbd.size();
  differences(dd, loss, got.data() + at, 2e-3, "ddown", 60), at += dd.size();
  differences(dbd, loss, got.data() + at, 2e-3, "ddown_bias", 60);
}

// The adapters: the forward equals that of merged weights, their gradients are those of the merged weights through
// B and A (the operator without adapters, tested above), and neither depends on how rows are cut.
void adapted(int64_t n, int64_t h, int64_t I, int64_t E, int32_t top_k, int32_t rank, bool first, bool second) {
  section("moe adapters n=" + std::to_string(n) + " E=" + std::to_string(E) + " r=" + std::to_string(rank));
  Random r((uint64_t)(n * 3 + h + E));
  const float scale = 0.7f, limit = 7;
  const Floats x = r.normals(n * h), gu = r.normals(E * h * 2 * I, 1 / std::sqrt((double)h)),
               gub = r.normals(E * 2 * I, 0.3), down = r.normals(E * I * h, 1 / std::sqrt((double)I)),
               downb = r.normals(E * h, 0.3), dy = r.normals(n * h);
  const Floats ua = r.normals(E * rank * h, 0.3), ub = r.normals(2 * I * rank * E, 0.3),
               da = r.normals(E * rank * I, 0.3), db = r.normals(h * rank * E, 0.3);
  Floats weight(n * top_k, 1.0f / top_k);
  Ints index(n * top_k);
  for (int64_t t = 0; t < n; t++)
    for (int32_t j = 0; j < top_k; j++) index[t * top_k + j] = (int32_t)((t * t + j) % E);
  // w [E, in, out] + scale sum_j b[o, j E + e] a[e rank + j, i]
  const auto merged = [&](const Floats& w, const Floats& a, const Floats& b, int64_t in, int64_t out) {
    Floats all = w;
    for (int64_t e = 0; e < E; e++)
      for (int64_t i = 0; i < in; i++)
        for (int64_t o = 0; o < out; o++) {
          double sum = 0;
          for (int64_t j = 0; j < rank; j++) sum += (double)b[(o * rank + j) * E + e] * a[(e * rank + j) * in + i];
          all[(e * in + i) * out + o] += (float)(scale * sum);
        }
    return all;
  };
  const Floats gu2 = first ? merged(gu, ua, ub, h, 2 * I) : gu, down2 = second ? merged(down, da, db, I, h) : down;
  Doubles y(n * h), dx(n * h), dwt(n * top_k), dua(ua.size()), dub(ub.size()), dda(da.size()), ddb(db.size());
  {
    const Place place = places()[0];
    const sfx_backend& b = *place.backend;
    sfx_stream* s = b.stream_create(1);
    Floats yf(n * h), dxf(n * h), dwf(n * top_k), dgu(gu.size()), dgub(gub.size()), ddown(down.size()),
        ddownb(downb.size());
    Floats saved(b.moe_saved_bytes(n, h, I, E, top_k) / 4);
    sfx_tensor tx = tensor(x, {n, h}), tg = tensor(gu2, {E, h, 2 * I}), tgb = tensor(gub, {E, 2 * I}),
               td = tensor(down2, {E, I, h}), tdb = tensor(downb, {E, h}), ty = tensor(yf, {n, h}),
               tdy = tensor(dy, {n, h}), tdx = tensor(dxf, {n, h}), tdg = tensor(dgu, {E, h, 2 * I}),
               tdgb = tensor(dgub, {E, 2 * I}), tdd = tensor(ddown, {E, I, h}), tddb = tensor(ddownb, {E, h});
    ok(b.moe_forward(s, &tx, index.data(), weight.data(), top_k, &tg, &tgb, &td, &tdb, limit, &ty, saved.data()), b);
    ok(b.moe_backward(s, &tdy, &tx, index.data(), weight.data(), top_k, &tg, &tgb, &td, &tdb, limit, saved.data(), &tdx,
                      dwf.data(), &tdg, &tdgb, &tdd, &tddb),
       b);
    b.stream_destroy(s);
    y = doubles(yf), dx = doubles(dxf), dwt = doubles(dwf);
    const auto through = [&](const Floats& dw, const Floats& a, const Floats& bb, int64_t in, int64_t out, Doubles* ga,
                             Doubles* gb) {
      for (int64_t e = 0; e < E; e++)
        for (int64_t i = 0; i < in; i++)
          for (int64_t o = 0; o < out; o++)
            for (int64_t j = 0; j < rank; j++) {
              const double d = scale * (double)dw[(e * in + i) * out + o];
              (*ga)[(e * rank + j) * in + i] += d * bb[(o * rank + j) * E + e];
              (*gb)[(o * rank + j) * E + e] += d * a[(e * rank + j) * in + i];
            }
    };
    if (first) through(dgu, ua, ub, h, 2 * I, &dua, &dub);
    if (second) through(ddown, da, db, I, h, &dda, &ddb);
  }
  const Floats got = everywhere([&](const sfx_backend& b, sfx_stream* s) {
    Floats yf(n * h), dxf(n * h), dwf = poison(n * top_k), gua(ua.size()), gub2(ub.size()), gda(da.size()),
                                  gdb(db.size());
    sfx_tensor tg = tensor(gu, {E, h, 2 * I}), tgb = tensor(gub, {E, 2 * I}), td = tensor(down, {E, I, h}),
               tdb = tensor(downb, {E, h});
    sfx_moe_adapters m = {};
    m.rank = rank, m.scale = scale;
    if (first) m.gate_up_a = ua.data(), m.gate_up_b = ub.data(), m.dgate_up_a = gua.data(), m.dgate_up_b = gub2.data();
    if (second) m.down_a = da.data(), m.down_b = db.data(), m.ddown_a = gda.data(), m.ddown_b = gdb.data();
    const auto pass = [&](int64_t from, int64_t rows) {
      const auto rows_of = [&](const Floats& f, int64_t width) {
        sfx_tensor t = tensor(const_cast<Floats&>(f), {rows, width});
        t.data = const_cast<float*>(f.data()) + from * width;
        return t;
      };
      Floats saved(b.moe_saved_bytes(rows, h, I, E, top_k) / 4 + 1);
      sfx_tensor tx = rows_of(x, h), ty = rows_of(yf, h), tdy = rows_of(dy, h), tdx = rows_of(dxf, h);
      const int32_t* const at = index.data() + from * top_k;
      const float* const w = weight.data() + from * top_k;
      ok(b.moe_adapted_forward(s, &tx, at, w, top_k, &tg, &tgb, &td, &tdb, limit, &ty, saved.data(), &m), b);
      ok(b.moe_adapted_backward(s, &tdy, &tx, at, w, top_k, &tg, &tgb, &td, &tdb, limit, saved.data(), &tdx,
                                dwf.data() + from * top_k, nullptr, nullptr, nullptr, nullptr, &m),
         b);
    };
    pass(0, n);
    const Floats whole = joined({&yf, &dxf, &dwf, &gua, &gub2, &gda, &gdb});
    for (Floats* f : {&yf, &dxf, &gua, &gub2, &gda, &gdb}) std::fill(f->begin(), f->end(), 0.0f);
    pass(0, n / 3), pass(n / 3, n - n / 3);
    check(same_bits(whole, joined({&yf, &dxf, &dwf, &gua, &gub2, &gda, &gdb})), "depends on the split");
    return whole;
  });
  size_t at = 0;
  const auto next = [&](const Doubles& expected, const std::string& what) {
    close(got, at, expected, 2e-5, what), at += expected.size();
  };
  next(y, "y"), next(dx, "dx"), next(dwt, "dweight");
  next(dua, "dgate_up_a"), next(dub, "dgate_up_b"), next(dda, "ddown_a"), next(ddb, "ddown_b");
}

// Experts in MXFP4 give the bits of the same experts widened beforehand, forward and in what goes back to their input.
void quantized(int64_t n, int64_t h, int64_t I, int64_t E, int32_t top_k) {
  section("moe mxfp4 n=" + std::to_string(n) + " h=" + std::to_string(h) + " I=" + std::to_string(I) +
          " E=" + std::to_string(E));
  Random r((uint64_t)(n * 5 + h + I + E));
  const Floats x = r.normals(n * h), dy = r.normals(n * h), gub = r.normals(E * 2 * I, 0.3), downb = r.normals(E * h);
  const int32_t rank = 2;
  const Floats ua = r.normals(E * rank * h, 0.3), ub = r.normals(2 * I * rank * E, 0.3);
  struct Experts {
    Array<uint8_t> stored;  // blocks of [E, out, in], then their scales
    Floats wide;            // [E, in, out]
  };
  const auto experts = [&](int64_t in, int64_t out) {
    static const float magnitudes[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    const int64_t count = E * in * out;
    Experts w = {Array<uint8_t>((size_t)(count / 32 * 17)), Floats((size_t)count)};
    for (auto& byte : w.stored) byte = (uint8_t)r.next();
    uint8_t* const scales = w.stored.data() + count / 2;
    for (int64_t b = 0; b < count / 32; b++) scales[b] = (uint8_t)(b % 7 == 0 ? r.below(4) : 120 + r.below(8));
    for (int64_t at = 0; at < count; at++) {  // e, o, i
      const int code = w.stored[(size_t)(at / 2)] >> (at % 2 * 4) & 15;
      const double value = std::ldexp(magnitudes[code & 7], scales[at / 32] - 127);
      const int64_t e = at / (in * out), o = at / in % out, i = at % in;
      w.wide[(size_t)((e * in + i) * out + o)] = (float)(code & 8 ? -value : value);
    }
    return w;
  };
  const Experts up = experts(h, 2 * I), back = experts(I, h);
  const Floats weight(n * top_k, 1.0f / top_k);
  Ints index(n * top_k);
  for (int64_t t = 0; t < n; t++)
    for (int32_t j = 0; j < top_k; j++) index[t * top_k + j] = (int32_t)((t * t + j) % E);
  everywhere([&](const sfx_backend& b, sfx_stream* s) {
    Floats results[2];
    for (int stored = 0; stored < 2; stored++) {
      Floats y(n * h), dx(n * h), dweight = poison(n * top_k), dua(ua.size()), dub(ub.size());
      Floats saved(b.moe_saved_bytes(n, h, I, E, top_k) / 4);
      sfx_tensor tg = tensor(up.wide, {E, h, 2 * I}), td = tensor(back.wide, {E, I, h});
      const auto store = [&](sfx_tensor* t, const Experts& w) {
        t->data = const_cast<uint8_t*>(w.stored.data()), t->dtype = SFX_MXFP4;
        t->stride[1] = 1, t->stride[2] = t->shape[1];
      };
      if (stored) store(&tg, up), store(&td, back);
      sfx_tensor tx = tensor(x, {n, h}), tdy = tensor(dy, {n, h}), ty = tensor(y, {n, h}), tdx = tensor(dx, {n, h}),
                 tgb = tensor(gub, {E, 2 * I}), tdb = tensor(downb, {E, h});
      sfx_moe_adapters m = {};
      m.rank = rank, m.scale = 0.7f;
      m.gate_up_a = ua.data(), m.gate_up_b = ub.data(), m.dgate_up_a = dua.data(), m.dgate_up_b = dub.data();
      ok(b.moe_adapted_forward(s, &tx, index.data(), weight.data(), top_k, &tg, &tgb, &td, &tdb, 7, &ty, saved.data(),
                               &m),
         b);
      ok(b.moe_adapted_backward(s, &tdy, &tx, index.data(), weight.data(), top_k, &tg, &tgb, &td, &tdb, 7, saved.data(),
                                &tdx, dweight.data(), nullptr, nullptr, nullptr, nullptr, &m),
         b);
      results[stored] = joined({&y, &saved, &dx, &dweight, &dua, &dub});
    }
    check(same_bits(results[0], results[1]), "mxfp4 differs: " + first_difference(results[0], results[1]));
    return results[1];
  });
}

}  // namespace

void test_moe() {
  quantized(1, 32, 32, 4, 2);     // decoding
  quantized(37, 64, 96, 3, 2);    // a few rows an expert
  quantized(200, 544, 32, 2, 1);  // more than one block of k
  quantized(900, 32, 64, 3, 2);   // pieces
  one(40, 24, 20, 4, 2, 7);
  one(40, 24, 20, 4, 2, 0.5f);  // most entries clamped
  one(1, 16, 16, 1, 1, 7);
  one(30, 33, 5, 8, 3, 7);
  one(70, 64, 64, 6, 2, 7);
  one(3, 16, 8, 8, 1, 7);  // experts without tokens
  adapted(40, 24, 20, 4, 2, 3, true, true);
  adapted(3, 16, 8, 8, 1, 1, true, false);
  adapted(900, 40, 33, 3, 2, 8, false, true);
  adapted(1300, 48, 16, 5, 1, 16, true, true);  // pieces
}
