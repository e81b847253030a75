#include "parameters.h"

#include <limits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace sinkflex {

void reset_float_environment() {
#if defined(__x86_64__)
  _mm_setcsr(0x1f80);  // all exceptions masked, round to nearest, no flush to zero, denormals as they are
#elif defined(__aarch64__)
  uint64_t zero = 0;
  asm volatile("msr fpcr, %0" ::"r"(zero));
#endif
}

Parameters::Parameters(const Config& c, std::vector<TensorSpec> tensors, int64_t data_start, int64_t data_bytes)
    : tensors_(std::move(tensors)), data_start_(data_start), data_bytes_(data_bytes) {
  for (const TensorSpec& t : tensors_) {
    const int64_t count = t.count();
    if (t.offset < 0 || t.offset % 4 != 0 || count < 0 || count > (std::numeric_limits<int64_t>::max() >> 4) ||
        t.offset + count * 4 > data_bytes_)
      throw Error("SINKFLEX_INTERNAL", "tensor " + t.name + " lies outside the data section");
  }
  embed_ = find("model.embed_tokens.weight", {c.vocab, c.hidden});
  norm_ = find("model.norm.weight", {c.hidden});
  head_ = c.tied ? embed_ : find("lm_head.weight", {c.vocab, c.hidden});
  for (int64_t l = 0; l < c.layers; ++l) {
    const std::string p = "model.layers." + std::to_string(l) + ".", a = p + "self_attn.", m = p + "mlp.";
    const int64_t Q = c.query_width(), K = c.kv_width(), h = c.hidden, I = c.intermediate, E = c.experts;
    auto bias = [&](const std::string& name, int64_t n) { return c.attention_bias ? find(name, {n}) : -1; };
    LayerIndex x{};
    x.input_norm = find(p + "input_layernorm.weight", {h});
    x.q = find(a + "q_proj.weight", {Q, h});
    x.q_bias = bias(a + "q_proj.bias", Q);
    x.k = find(a + "k_proj.weight", {K, h});
    x.k_bias = bias(a + "k_proj.bias", K);
    x.v = find(a + "v_proj.weight", {K, h});
    x.v_bias = bias(a + "v_proj.bias", K);
    x.o = find(a + "o_proj.weight", {h, Q});
    x.o_bias = bias(a + "o_proj.bias", h);
    x.sinks = find(a + "sinks", {c.heads});
    x.post_norm = find(p + "post_attention_layernorm.weight", {h});
    x.router = find(m + "router.weight", {E, h});
    x.router_bias = find(m + "router.bias", {E});
    x.gate_up = find(m + "experts.gate_up_proj", {E, h, 2 * I});
    x.gate_up_bias = find(m + "experts.gate_up_proj_bias", {E, 2 * I});
    x.down = find(m + "experts.down_proj", {E, I, h});
    x.down_bias = find(m + "experts.down_proj_bias", {E, h});
    layers_.push_back(x);
  }
}

int Parameters::find(const std::string& name, std::vector<int64_t> shape) {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i].name != name) continue;
    if (tensors_[i].shape != shape) throw Error("SINKFLEX_INTERNAL", "tensor " + name + " has an unexpected shape");
    return static_cast<int>(i);
  }
  throw Error("SINKFLEX_INTERNAL", "the tensor table lacks " + name);
}

sfx_tensor Parameters::at(const void* data, int index) const {
  if (index < 0) return view(nullptr, {0});
  const TensorSpec& t = tensors_[static_cast<size_t>(index)];
  const uint8_t* p = static_cast<const uint8_t*>(data) + t.offset;
  switch (t.shape.size()) {
    case 1:
      return view(p, {t.shape[0]});
    case 2:
      return view(p, {t.shape[0], t.shape[1]});
    default:
      return view(p, {t.shape[0], t.shape[1], t.shape[2]});
  }
}

void Parameters::bind(const void* data, Weights* w) const {
  w->embed = at(data, embed_);
  w->norm = at(data, norm_);
  w->head = at(data, head_);
  w->layers.resize(layers_.size());
  for (size_t l = 0; l < layers_.size(); ++l) {
    const LayerIndex& x = layers_[l];
    LayerWeights& y = w->layers[l];
    y.input_norm = at(data, x.input_norm);
    y.q = at(data, x.q);
    y.q_bias = at(data, x.q_bias);
    y.k = at(data, x.k);
    y.k_bias = at(data, x.k_bias);
    y.v = at(data, x.v);
    y.v_bias = at(data, x.v_bias);
    y.o = at(data, x.o);
    y.o_bias = at(data, x.o_bias);
    y.sinks = at(data, x.sinks);
    y.post_norm = at(data, x.post_norm);
    y.router = at(data, x.router);
    y.router_bias = at(data, x.router_bias);
    y.gate_up = at(data, x.gate_up);
    y.gate_up_bias = at(data, x.gate_up_bias);
    y.down = at(data, x.down);
    y.down_bias = at(data, x.down_bias);
  }
}

}  // namespace sinkflex
