#include "parameters.h"

#include <algorithm>
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

void Parameters::check_bounds() {
  for (TensorSpec& t : tensors_) {
    const int64_t count = t.count(), each = t.dtype == SFX_MXFP4 ? 1 : t.dtype == SFX_BF16 ? 2 : 4;
    if (t.gradient < 0) t.gradient = t.offset;
    if (t.offset < 0 || t.offset % each != 0 || t.gradient % 4 != 0 || count < 0 ||
        count > (std::numeric_limits<int64_t>::max() >> 5) || t.offset + t.bytes() > data_bytes_ ||
        (t.dtype == SFX_MXFP4 && (t.shape.size() != 3 || t.shape[1] % 32 != 0)))
      throw Error("SINKFLEX_INTERNAL", "tensor " + t.name + " lies outside the data section");
    gradient_bytes_ = std::max(gradient_bytes_, t.gradient + count * 4);
  }
}

Parameters::Parameters(const Config& c, std::vector<TensorSpec> tensors, int64_t data_start, int64_t data_bytes)
    : tensors_(std::move(tensors)), data_start_(data_start), data_bytes_(data_bytes) {
  check_bounds();
  embed_ = find("model.embed_tokens.weight", {c.vocab, c.hidden});
  norm_ = find("model.norm.weight", {c.hidden});
  head_ = c.tied ? embed_ : find("lm_head.weight", {c.vocab, c.hidden});
  for (int64_t l = 0; l < c.layers; ++l) {
    const std::string p = "model.layers." + std::to_string(l) + ".", a = p + "self_attn.", m = p + "mlp.";
    const int64_t Q = c.query_width(), K = c.kv_width(), h = c.hidden, I = c.intermediate, E = c.experts;
    std::vector<Entry> entries;
    auto add = [&](sfx_tensor LayerWeights::* member, const std::string& name, std::vector<int64_t> shape,
                   bool present = true) { entries.push_back({member, present ? find(name, std::move(shape)) : -1}); };
    using W = LayerWeights;
    add(&W::input_norm, p + "input_layernorm.weight", {h});
    add(&W::q, a + "q_proj.weight", {Q, h});
    add(&W::q_bias, a + "q_proj.bias", {Q}, c.qkv_bias);
    add(&W::k, a + "k_proj.weight", {K, h});
    add(&W::k_bias, a + "k_proj.bias", {K}, c.qkv_bias);
    add(&W::v, a + "v_proj.weight", {K, h});
    add(&W::v_bias, a + "v_proj.bias", {K}, c.qkv_bias);
    add(&W::o, a + "o_proj.weight", {h, Q});
    add(&W::o_bias, a + "o_proj.bias", {h}, c.o_bias);
    add(&W::sinks, a + "sinks", {c.heads}, c.sinks);
    add(&W::q_norm, a + "q_norm.weight", {c.head_dim}, c.qk_norm);
    add(&W::k_norm, a + "k_norm.weight", {c.head_dim}, c.qk_norm);
    add(&W::post_norm, p + "post_attention_layernorm.weight", {h});
    const bool dense = c.dense();
    add(&W::router, m + "router.weight", {E, h}, !dense);
    add(&W::router_bias, m + "router.bias", {E}, !dense);
    add(&W::gate_up, m + "experts.gate_up_proj", {E, h, 2 * I}, !dense);
    add(&W::gate_up_bias, m + "experts.gate_up_proj_bias", {E, 2 * I}, !dense);
    add(&W::gate, m + "gate_proj.weight", {I, h}, dense);
    add(&W::gate_bias, m + "gate_proj.bias", {I}, dense && c.mlp_bias);
    add(&W::up, m + "up_proj.weight", {I, h}, dense);
    add(&W::up_bias, m + "up_proj.bias", {I}, dense && c.mlp_bias);
    if (dense) {
      add(&W::down, m + "down_proj.weight", {h, I});
      add(&W::down_bias, m + "down_proj.bias", {h}, c.mlp_bias);
    } else {
      add(&W::down, m + "experts.down_proj", {E, I, h});
      add(&W::down_bias, m + "experts.down_proj_bias", {E, h});
    }
    layers_.push_back(std::move(entries));
  }
}

Parameters::Parameters(const Config& c, std::vector<TensorSpec> tensors, int64_t data_start, int64_t data_bytes,
                       std::shared_ptr<const Parameters> base, const void* base_data)
    : tensors_(std::move(tensors)),
      data_start_(data_start),
      data_bytes_(data_bytes),
      base_(std::move(base)),
      base_data_(base_data) {
  check_bounds();
  size_t found = 0;
  for (int64_t l = 0; l < c.layers; ++l) {
    // PEFT's names: those of the model inside its two wrappers.
    const std::string p = "base_model.model.model.layers." + std::to_string(l) + ".", a = p + "self_attn.",
                      m = p + "mlp.";
    const int64_t Q = c.query_width(), K = c.kv_width(), h = c.hidden, I = c.intermediate, r = c.lora_rank;
    std::vector<AdapterEntry> entries;
    auto add_shaped = [&](Adapter LayerWeights::* member, const std::string& module, std::vector<int64_t> a_shape,
                          std::vector<int64_t> b_shape) {
      const int ia = find_optional(module + ".lora_A.weight", std::move(a_shape));
      const int ib = find_optional(module + ".lora_B.weight", std::move(b_shape));
      if ((ia < 0) != (ib < 0)) throw Error("SINKFLEX_INTERNAL", "the adapter of " + module + " is half");
      if (ia < 0) return;
      entries.push_back({member, ia, ib});
      found += 2;
    };
    auto add = [&](Adapter LayerWeights::* member, const std::string& module, int64_t out, int64_t in) {
      add_shaped(member, module, {r, in}, {out, r});
    };
    auto has = [&](const std::string& name, const std::vector<int64_t>& shape) {
      for (const TensorSpec& t : tensors_)
        if (t.name == name) return t.shape == shape;
      return false;
    };
    using W = LayerWeights;
    add(&W::q_lora, a + "q_proj", Q, h);
    add(&W::k_lora, a + "k_proj", K, h);
    add(&W::v_lora, a + "v_proj", K, h);
    add(&W::o_lora, a + "o_proj", h, Q);
    if (c.dense()) {
      add(&W::gate_lora, m + "gate_proj", I, h);
      add(&W::up_lora, m + "up_proj", I, h);
      add(&W::down_lora, m + "down_proj", h, I);
    } else {
      // PEFT wraps one parameter of the module after the other: with both adapted, the first is the inner one.
      const std::string outer = m + "experts", inner = outer + ".base_layer";
      const int64_t E = c.experts;
      const std::vector<int64_t> up_a{E * r, h}, up_b{2 * I, r * E};
      const bool both = has(inner + ".lora_A.weight", up_a);
      if (both || (has(outer + ".lora_A.weight", up_a) && has(outer + ".lora_B.weight", up_b)))
        add_shaped(&W::gate_up_lora, both ? inner : outer, up_a, up_b);
      if (both || entries.empty() || entries.back().member != &W::gate_up_lora)
        add_shaped(&W::down_lora, outer, {E * r, I}, {h, r * E});
    }
    adapters_.push_back(std::move(entries));
  }
  if (found != tensors_.size()) throw Error("SINKFLEX_INTERNAL", "an adapter belongs to no layer of the model");
}

sfx_moe_adapters expert_adapters(const Config& c, const LayerWeights& w, const LayerWeights* d) {
  auto at = [](const sfx_tensor& t) { return static_cast<float*>(t.data); };
  sfx_moe_adapters m{};
  if (!w.gate_up_lora.a.data && !w.down_lora.a.data) return m;
  m.rank = static_cast<int32_t>(c.lora_rank);
  m.scale = c.lora_scale;
  m.gate_up_a = at(w.gate_up_lora.a), m.gate_up_b = at(w.gate_up_lora.b);
  m.down_a = at(w.down_lora.a), m.down_b = at(w.down_lora.b);
  if (!d) return m;
  m.dgate_up_a = at(d->gate_up_lora.a), m.dgate_up_b = at(d->gate_up_lora.b);
  m.ddown_a = at(d->down_lora.a), m.ddown_b = at(d->down_lora.b);
  return m;
}

int Parameters::find_optional(const std::string& name, std::vector<int64_t> shape) {
  for (const TensorSpec& t : tensors_)
    if (t.name == name) return find(name, std::move(shape));
  return -1;
}

int Parameters::find(const std::string& name, std::vector<int64_t> shape) {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i].name != name) continue;
    if (tensors_[i].shape != shape) throw Error("SINKFLEX_INTERNAL", "tensor " + name + " has an unexpected shape");
    return static_cast<int>(i);
  }
  throw Error("SINKFLEX_INTERNAL", "the tensor table lacks " + name);
}

sfx_tensor Parameters::at(const void* data, int index, bool gradient) const {
  if (index < 0) return view(nullptr, {0});
  const TensorSpec& t = tensors_[static_cast<size_t>(index)];
  const uint8_t* p = static_cast<const uint8_t*>(data) + (gradient ? t.gradient : t.offset);
  const std::vector<int64_t>& s = t.shape;
  sfx_tensor x = s.size() == 1 ? view(p, {s[0]}) : s.size() == 2 ? view(p, {s[0], s[1]}) : view(p, {s[0], s[1], s[2]});
  if (gradient) return x;
  x.dtype = t.dtype;
  if (t.dtype == SFX_MXFP4) x.stride[1] = 1, x.stride[2] = s[1];
  return x;
}

void Parameters::bind_adapters(const void* data, Weights* w, bool gradients) const {
  for (size_t l = 0; l < adapters_.size(); ++l)
    for (const AdapterEntry& entry : adapters_[l])
      w->layers[l].*entry.member = {at(data, entry.a, gradients), at(data, entry.b, gradients)};
}

void Parameters::bind_own(const void* data, Weights* w, bool gradients) const {
  w->embed = at(data, embed_, gradients);
  w->norm = at(data, norm_, gradients);
  w->head = at(data, head_, gradients);
  w->layers.resize(layers_.size());
  for (size_t l = 0; l < layers_.size(); ++l)
    for (const Entry& entry : layers_[l]) w->layers[l].*entry.member = at(data, entry.index, gradients);
}

void Parameters::bind_gradients(const void* data, Weights* w) const {
  if (!base_) return bind_own(data, w, true);
  *w = Weights{};
  w->layers.resize(adapters_.size());
  bind_adapters(data, w, true);
}

void Parameters::bind(const void* data, Weights* w) const {
  if (!base_) return bind_own(data, w, false);
  base_->bind(base_data_, w);
  bind_adapters(data, w, false);
}

}  // namespace sinkflex
