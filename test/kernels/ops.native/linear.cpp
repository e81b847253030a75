// linear: values, gradients, both weight layouts, edges, and independence of the batch, its split and the threads.
#include "harness.h"

namespace {

// w as [out,in], or stored transposed and described with swapped strides
sfx_tensor weight(const Floats& f, int64_t out, int64_t in, bool transposed) {
  sfx_tensor t = tensor(f, {out, in});
  if (transposed) t.stride[0] = 1, t.stride[1] = out;
  return t;
}

void one(int64_t n, int64_t in, int64_t out, bool transposed, bool biased, bool accumulate) {
  section("linear n=" + std::to_string(n) + " in=" + std::to_string(in) + " out=" + std::to_string(out) +
          (transposed ? " T" : ""));
  Random r((uint64_t)(n * 131 + in * 17 + out));
  const Floats x = r.normals(n * in), w = r.normals(out * in, 0.3), b = r.normals(out), y0 = r.normals(n * out),
               dy = r.normals(n * out);
  const Floats dx0 = r.normals(n * in), dw0 = r.normals(out * in), db0 = r.normals(out);
  const auto run = [&](const sfx_backend& k, sfx_stream* s) {
    Floats y = accumulate ? y0 : poison(n * out), dx = accumulate ? dx0 : poison(n * in), dw = dw0, db = db0;
    const sfx_tensor tx = tensor(x, {n, in}), tw = weight(w, out, in, transposed), tb = tensor(b, {out}),
                     tdy = tensor(dy, {n, out});
    sfx_tensor ty = tensor(y, {n, out}), tdx = tensor(dx, {n, in}), tdw = weight(dw, out, in, transposed),
               tdb = tensor(db, {out});
    ok(k.linear_forward(s, &tx, &tw, biased ? &tb : nullptr, accumulate, &ty), k);
    ok(k.linear_backward_input(s, &tdy, &tw, accumulate, &tdx), k);
    ok(k.linear_backward_weight(s, &tdy, &tx, &tdw, biased ? &tdb : nullptr), k);
    return joined({&y, &dx, &dw, &db});
  };
  const Floats got = everywhere(run);
  const auto at = [&](int64_t o, int64_t i) { return transposed ? i * out + o : o * in + i; };
  Doubles y(n * out), dx(n * in), dw = doubles(dw0), db = doubles(db0);
  for (int64_t t = 0; t < n; t++)
    for (int64_t o = 0; o < out; o++) {
      double sum = (accumulate ? y0[t * out + o] : 0.0) + (biased ? b[o] : 0.0);
      for (int64_t i = 0; i < in; i++) sum += (double)x[t * in + i] * w[at(o, i)];
      y[t * out + o] = sum;
      if (biased) db[o] += dy[t * out + o];
      for (int64_t i = 0; i < in; i++)
        dx[t * in + i] += (double)dy[t * out + o] * w[at(o, i)],
            dw[at(o, i)] += (double)dy[t * out + o] * x[t * in + i];
    }
  if (accumulate)
    for (size_t i = 0; i < dx.size(); i++) dx[i] += dx0[i];
  close(got, 0, y, 1e-5, "y");
  close(got, y.size(), dx, 1e-5, "dx");
  close(got, y.size() + dx.size(), dw, 1e-5, "dw");
  close(got, y.size() + dx.size() + dw.size(), db, 1e-5, "db");
}

// The first rows alone, and gradients in two halves, must give the bits of the whole.
void splits() {
  section("linear splits");
  const int64_t n = 101, in = 700, out = 77;
  Random r(5);
  const Floats x = r.normals(n * in), w = r.normals(out * in), dy = r.normals(n * out), b = r.normals(out);
  everywhere([&](const sfx_backend& k, sfx_stream* s) {
    Floats y = poison(n * out), part = poison(n * out), dw(out * in), dw2(out * in), db(out), db2(out);
    sfx_tensor tx = tensor(x, {n, in}), tw = tensor(w, {out, in}), ty = tensor(y, {n, out}), tb = tensor(b, {out}),
               tdy = tensor(dy, {n, out});
    sfx_tensor tdw = tensor(dw, {out, in}), tdb = tensor(db, {out}), tdw2 = tensor(dw2, {out, in}),
               tdb2 = tensor(db2, {out});
    ok(k.linear_forward(s, &tx, &tw, &tb, 0, &ty), k);
    ok(k.linear_backward_weight(s, &tdy, &tx, &tdw, &tdb), k);
    const int64_t cuts[] = {0, 1, 3, 40, 57, n};
    for (int c = 0; c + 1 < 6; c++) {
      const int64_t rows = cuts[c + 1] - cuts[c];
      sfx_tensor px = tensor(x, {rows, in}), py = tensor(part, {rows, out}), pdy = tensor(dy, {rows, out});
      px.data = const_cast<float*>(x.data()) + cuts[c] * in, py.data = part.data() + cuts[c] * out;
      pdy.data = const_cast<float*>(dy.data()) + cuts[c] * out;
      ok(k.linear_forward(s, &px, &tw, &tb, 0, &py), k);
      ok(k.linear_backward_weight(s, &pdy, &px, &tdw2, &tdb2), k);
    }
    check(same_bits(y, part), "rows depend on their batch");
    check(same_bits(dw, dw2) && same_bits(db, db2), "gradients depend on the split");
    return y;
  });
}

// Weights in bf16 give the bits of the same weights widened beforehand.
void half_weights(int64_t n, int64_t in, int64_t out, bool transposed) {
  section("linear bf16 n=" + std::to_string(n) + " in=" + std::to_string(in) + (transposed ? " T" : ""));
  Random r((uint64_t)(n + in));
  const Floats x = r.normals(n * in), dy = r.normals(n * out), b = r.normals(out);
  Array<uint16_t> half((size_t)(in * out));
  Floats wide(half.size());
  for (size_t i = 0; i < half.size(); i++) {
    half[i] = (uint16_t)(r.next() & 0x807f) | (uint16_t)((112 + r.below(16)) << 7);
    const uint32_t bits = (uint32_t)half[i] << 16;
    std::memcpy(&wide[i], &bits, 4);
  }
  everywhere([&](const sfx_backend& k, sfx_stream* s) {
    Floats results[2];
    for (int stored = 0; stored < 2; stored++) {
      Floats y = poison(n * out), dx = poison(n * in);
      sfx_tensor tw = weight(wide, out, in, transposed);
      if (stored == 1) tw.data = half.data(), tw.dtype = SFX_BF16;
      const sfx_tensor tx = tensor(x, {n, in}), tdy = tensor(dy, {n, out}), tb = tensor(b, {out});
      sfx_tensor ty = tensor(y, {n, out}), tdx = tensor(dx, {n, in});
      ok(k.linear_forward(s, &tx, &tw, &tb, 0, &ty), k);
      ok(k.linear_backward_input(s, &tdy, &tw, 0, &tdx), k);
      results[stored] = joined({&y, &dx});
    }
    check(same_bits(results[0], results[1]), "bf16 differs: " + first_difference(results[0], results[1]));
    return results[1];
  });
}

}  // namespace

void test_linear() {
  for (int64_t n : {1, 2, 5, 33, 64, 70})
    for (bool transposed : {false, true}) {
      half_weights(n, 530, 45, transposed);
      half_weights(n, 31, 200, transposed);
    }
  for (int64_t n : {0, 1, 2, 7, 13, 64})
    for (bool transposed : {false, true}) {
      one(n, 48, 40, transposed, true, false);
      one(n, 33, 5, transposed, n % 2 == 0, true);
    }
  one(1, 1, 1, false, true, true);
  one(300, 65, 129, false, true, false);
  one(130, 1100, 70, true, true, true);
  one(20, 530, 300, false, true, true);
  splits();
  section("linear refuses");
  const sfx_backend* k = places()[0].backend;
  sfx_stream* s = k->stream_create(1);
  Floats f(16);
  sfx_tensor a = tensor(f, {4, 4}), half = a;
  half.dtype = SFX_BF16;
  check(k->linear_forward(s, &half, &a, nullptr, 0, &a) == SFX_UNSUPPORTED, "bf16 is refused with a status");
  check(std::strlen(k->last_error()) > 10, "and a message");
  k->stream_destroy(s);
}
