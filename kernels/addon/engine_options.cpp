#include "engine_options.h"

#include "arguments.h"

namespace sinkflex {

namespace {

int64_t config_integer(const Napi::Object& o, const char* key, int64_t low = 1, int64_t high = int64_t{1} << 31) {
  return integer_of(o.Get(key), std::string("config.") + key, low, high);
}

}  // namespace

Config read_config(const Napi::Object& o) {
  Config c;
  c.vocab = config_integer(o, "vocab");
  c.hidden = config_integer(o, "hidden");
  c.intermediate = config_integer(o, "intermediate");
  c.layers = config_integer(o, "layers", 0);
  c.heads = config_integer(o, "heads");
  c.kv_heads = config_integer(o, "kvHeads");
  c.head_dim = config_integer(o, "headDim", 2);
  c.experts = config_integer(o, "experts", 0);
  c.top_k = config_integer(o, "topK", 0);
  c.eps = static_cast<float>(number_of(o.Get("eps"), "config.eps"));
  c.swiglu_limit = static_cast<float>(number_of(o.Get("swigluLimit"), "config.swigluLimit"));
  c.tied = boolean_of(o.Get("tied"), "config.tied");
  c.qkv_bias = boolean_of(o.Get("qkvBias"), "config.qkvBias");
  c.o_bias = boolean_of(o.Get("oBias"), "config.oBias");
  c.mlp_bias = boolean_of(o.Get("mlpBias"), "config.mlpBias");
  c.sinks = boolean_of(o.Get("sinks"), "config.sinks");
  c.qk_norm = boolean_of(o.Get("qkNorm"), "config.qkNorm");
  c.lora_rank = config_integer(o, "loraRank", 0, 4096);
  c.lora_scale = static_cast<float>(number_of(o.Get("loraScale"), "config.loraScale"));
  const auto windows = doubles_of(o.Get("windows"), "config.windows");
  for (size_t i = 0; i < windows.size; ++i) c.window.push_back(static_cast<int64_t>(windows.data[i]));
  if (static_cast<int64_t>(c.window.size()) != c.layers) throw bad_argument("config.windows", "one number a layer");
  c.prefix = config_integer(o, "prefix", 0);
  if (c.heads % c.kv_heads != 0) throw bad_argument("config.heads", "a multiple of kvHeads");
  if (c.head_dim % 2 != 0) throw bad_argument("config.headDim", "even");
  if (c.top_k > c.experts) throw bad_argument("config.topK", "at most the number of experts");
  const Napi::Object r = object_of(o.Get("rope"), "config.rope");
  c.rope.theta = number_of(r.Get("theta"), "config.rope.theta");
  const std::string kind = string_of(r.Get("kind"), "config.rope.kind");
  if (kind == "yarn")
    c.rope.kind = RopeKind::yarn;
  else if (kind == "llama3")
    c.rope.kind = RopeKind::llama3;
  else if (kind != "default")
    throw bad_argument("config.rope.kind", "default, yarn or llama3");
  c.rope.factor = number_of(r.Get("factor"), "config.rope.factor");
  c.rope.beta_fast = number_of(r.Get("betaFast"), "config.rope.betaFast");
  c.rope.beta_slow = number_of(r.Get("betaSlow"), "config.rope.betaSlow");
  c.rope.original_positions = number_of(r.Get("originalPositions"), "config.rope.originalPositions");
  c.rope.attention_factor = number_of(r.Get("attentionFactor"), "config.rope.attentionFactor");
  c.rope.truncate = boolean_of(r.Get("truncate"), "config.rope.truncate");
  c.rope.low_frequency = number_of(r.Get("lowFrequency"), "config.rope.lowFrequency");
  c.rope.high_frequency = number_of(r.Get("highFrequency"), "config.rope.highFrequency");
  return c;
}

std::vector<TensorSpec> read_tensors(const Napi::Value& value) {
  if (!value.IsArray()) throw bad_argument("layout.tensors", "an array");
  const auto array = value.As<Napi::Array>();
  std::vector<TensorSpec> tensors;
  for (uint32_t i = 0; i < array.Length(); ++i) {
    const Napi::Object o = object_of(array.Get(i), "layout.tensors[]");
    TensorSpec t;
    t.name = string_of(o.Get("name"), "layout.tensors[].name");
    const Napi::Object shape = object_of(o.Get("shape"), "layout.tensors[].shape");
    const int64_t rank = integer_of(shape.Get("length"), "layout.tensors[].shape.length", 1, 3);
    for (uint32_t d = 0; d < rank; ++d)
      t.shape.push_back(integer_of(shape.Get(d), "layout.tensors[].shape[]", 1, int64_t{1} << 40));
    t.offset = integer_of(o.Get("offset"), "layout.tensors[].offset", 0, int64_t{1} << 52);
    t.decay = boolean_of(o.Get("decay"), "layout.tensors[].decay");
    const std::string dtype = string_of(o.Get("dtype"), "layout.tensors[].dtype");
    t.dtype = dtype == "MXFP4" ? SFX_MXFP4 : dtype == "BF16" ? SFX_BF16 : SFX_F32;
    t.gradient = integer_of(o.Get("gradientOffset"), "layout.tensors[].gradientOffset", 0, int64_t{1} << 52);
    tensors.push_back(std::move(t));
  }
  return tensors;
}

// {bytes, slot, seed, m, v, mScale, vScale: Float64Array with -1 where there is none}
Moments read_moment_layout(const Napi::Object& o, size_t tensors) {
  Moments moments;
  moments.bytes = integer_of(o.Get("bytes"), "moments.bytes", 0, int64_t{1} << 52);
  moments.slot = integer_of(o.Get("slot"), "moments.slot", -1, int64_t{1} << 52);
  moments.seed = static_cast<uint32_t>(integer_of(o.Get("seed"), "moments.seed", 0, UINT32_MAX));
  const auto m = doubles_of(o.Get("m"), "moments.m"), v = doubles_of(o.Get("v"), "moments.v"),
             m_scale = doubles_of(o.Get("mScale"), "moments.mScale"),
             v_scale = doubles_of(o.Get("vScale"), "moments.vScale");
  if (m.size != tensors || v.size != tensors || m_scale.size != tensors || v_scale.size != tensors)
    throw bad_argument("moments", "one offset a tensor");
  for (size_t i = 0; i < tensors; ++i)
    moments.tensors.push_back({static_cast<int64_t>(m.data[i]), static_cast<int64_t>(v.data[i]),
                               static_cast<int64_t>(m_scale.data[i]), static_cast<int64_t>(v_scale.data[i])});
  return moments;
}

}  // namespace sinkflex
