// The closed set of what sink attention may be made of: masks (causal, window, prefix, documents), scores (softcap,
// ALiBi) and sink functions f(lse), each beside its derivative. A new one is added here alone (and named in backend.h).
//
// Why a sink function costs the kernels nothing: O = f(l) P V with P = exp(S - l). With l' = l - log f, P' = exp(S -
// l') = f P and delta = dO . O, the gradient of a score is P'_j (dO . v_j - delta'), delta' = delta (1 - f'/f) / f, and
// that of the sink logit sum (df/ds / f) delta. For the sigmoid l' = log(exp l + exp s) and delta' = delta.
#ifndef SINKFLEX_OPS_ATTENTION_VARIANTS_H
#define SINKFLEX_OPS_ATTENTION_VARIANTS_H

#include "elementary.h"
#include "operation.h"

namespace SFX_NS {

// Masks and scores as the rows of one segment and one key head see them.
struct View {
  int64_t window, prefix;
  const int32_t* start;  // [positions of the segment] or NULL
  const float* slopes;   // [group] or NULL
  float scale, softcap;
  bool plain;  // scores are scale q k and nothing more
};

SFX_INLINE View view_of(const sfx_attention_mask& mask, int64_t first_row, int64_t first_head) {
  const sfx_attention_variant none = {}, &v = mask.variant ? *mask.variant : none;
  return {mask.window,
          mask.prefix,
          v.document_start ? v.document_start + first_row : nullptr,
          v.slopes ? v.slopes + first_head : nullptr,
          mask.scale,
          v.softcap,
          !v.slopes && !(v.softcap > 0)};
}

// ---- masks: k <= t, and k >= lowest(t) or k < prefix. lowest never falls as t grows, so blocks are skipped in closed
// form.
SFX_INLINE int64_t lowest(int64_t t, const View& view) {
  const int64_t low = view.window < 0 ? 0 : most(t - view.window, 0);
  return view.start ? most(low, view.start[t]) : low;
}

// ---- scores. x holds scale q k of keys [j, j + 16) and query position t; *slope (or NULL) becomes d score / d x.
SFX_INLINE v16 tanh(v16 x) {
  const v16 size = max(x, negate(x)), e = exp_down(mul(size, set1(-2.0f)));
  const v16 far = div(sub(set1(1.0f), e), add(set1(1.0f), e)), x2 = mul(x, x);
  v16 p = fma(x2, set1(-17.0f / 315), set1(2.0f / 15));
  p = fma(x2, p, set1(-1.0f / 3));
  const v16 near = fma(mul(x2, p), x, x);
  return select(less(size, set1(0.2f)), near, select(less(x, zero()), negate(far), far));
}

SFX_INLINE v16 varied_score(v16 x, const View& view, int64_t head, int64_t t, int64_t j, v16* slope) {
  if (slope) *slope = set1(1.0f);
  if (view.softcap > 0) {
    const v16 y = tanh(mul(x, set1(1.0f / view.softcap)));
    if (slope) *slope = fma(negate(y), y, set1(1.0f));
    x = mul(y, set1(view.softcap));
  }
  if (view.slopes) x = fma(set1(view.slopes[head]), add(iota(), set1((float)(j - t))), x);
  return x;
}

// ---- sink functions other than the sigmoid, which is a key of score s and value 0 and needs no treatment.
struct SinkTerms {
  v16 f, log_f;
  v16 ratio;  // (1 - f'/f) / f, with f' = df/dlse
  v16 sink;   // df/ds / f
};

SFX_INLINE SinkTerms sink_terms(int32_t function, v16 lse, v16 s) {
  const v16 one = set1(1.0f);
  if (function == SFX_SINK_GATE) {
    const v16 f = sigmoid(s);
    return {f, log(f), div(one, f), sigmoid(negate(s))};
  }
  // SFX_SINK_SATURATION: f = 1 - exp(-u), u = exp(lse - s); f' = u exp(-u) = -df/ds. Small u by series, or 1 - exp(-u)
  // would cancel. exp ends near 88: u is held where f is 1 long since.
  const v16 x = min(sub(lse, s), set1(4.6f)), u = exp(x), e = exp_down(negate(u));
  const m16 small = less(u, set1(0.01f));
  const v16 f = select(small, mul(u, fma(u, fma(u, set1(1.0f / 6), set1(-0.5f)), one)), sub(one, e));
  const v16 rise = select(small, fma(u, fma(u, set1(1.0f / 12), set1(-0.5f)), one), div(mul(u, e), f));  // f'/f
  const v16 ratio = select(small, fma(u, set1(1.0f / 6), set1(0.5f)), div(sub(one, rise), f));
  return {f, select(less(x, set1(-20.0f)), x, log(f)), ratio, negate(rise)};
}

SFX_INLINE int32_t sink_function(const sfx_attention_mask& mask) {
  return mask.variant ? mask.variant->sink_function : (int32_t)SFX_SINK_SIGMOID;
}

// NULL, or why the variant cannot be computed.
SFX_INLINE const char* variant_problem(const sfx_attention_mask& mask) {
  if (!mask.variant) return nullptr;
  if (mask.variant->sink_function < SFX_SINK_SIGMOID || mask.variant->sink_function > SFX_SINK_SATURATION)
    return "attention: unknown sink function";
  if (mask.variant->softcap < 0) return "attention: softcap is below 0";
  return nullptr;
}

}  // namespace SFX_NS
#endif
