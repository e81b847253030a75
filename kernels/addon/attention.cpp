// sinkAttention and sinkAttentionBackward over plain arrays: one operator call each, on the caller. For the golden
// fixtures, for benches and for people who want the operator alone; the engine does not come by here.
#include <cmath>
#include <cstdlib>

#include "../backend.h"
#include "../model/tensors.h"
#include "addon.h"
#include "arguments.h"

namespace sinkflex {

namespace {

struct AttentionInputs {
  int64_t n = 0, heads = 0, kv_heads = 0, head_dim = 0, segments = 0;
  sfx_tensor q{}, k{}, v{};
  const float* sink = nullptr;
  const int32_t* cu = nullptr;
  sfx_attention_mask mask{};
  int32_t threads = 1;
};

// A stream for one call.
class CallStream {
 public:
  CallStream(const sfx_backend* backend, int32_t threads)
      : backend_(backend), stream_(backend->stream_create(threads)) {}
  ~CallStream() { backend_->stream_destroy(stream_); }
  CallStream(const CallStream&) = delete;
  CallStream& operator=(const CallStream&) = delete;
  sfx_stream* get() const { return stream_; }

 private:
  const sfx_backend* backend_;
  sfx_stream* stream_;
};

const sfx_backend* backend_here() {
  const char* isa = std::getenv("SINKFLEX_CPU");
  const sfx_backend* backend = sfx_cpu_backend(isa && *isa ? isa : nullptr);
  if (!backend)
    throw Error("SINKFLEX_CPU_UNSUPPORTED",
                std::string("this machine or build cannot run SINKFLEX_CPU=") + (isa ? isa : "(default)"));
  return backend;
}

const float* floats_sized(const Napi::Value& value, const std::string& name, int64_t count) {
  const auto a = floats_of(value, name);
  if (static_cast<int64_t>(a.size) != count) throw bad_argument(name, "of " + std::to_string(count) + " elements");
  return a.data;
}

AttentionInputs read_inputs(const Napi::Object& o) {
  AttentionInputs x;
  x.heads = integer_of(o.Get("heads"), "heads", 1, 1 << 20);
  x.kv_heads = integer_of(o.Get("kvHeads"), "kvHeads", 1, 1 << 20);
  x.head_dim = integer_of(o.Get("headDim"), "headDim", 1, 1 << 16);
  if (x.heads % x.kv_heads != 0) throw bad_argument("heads", "a multiple of kvHeads");
  const auto cu = int32s_of(o.Get("cuSeqlens"), "cuSeqlens");
  if (cu.size < 2 || cu.data[0] != 0) throw bad_argument("cuSeqlens", "ascending from 0");
  for (size_t i = 1; i < cu.size; ++i)
    if (cu.data[i] < cu.data[i - 1]) throw bad_argument("cuSeqlens", "ascending from 0");
  x.cu = cu.data;
  x.segments = static_cast<int64_t>(cu.size) - 1;
  x.n = cu.data[cu.size - 1];
  x.q = view(floats_sized(o.Get("q"), "q", x.n * x.heads * x.head_dim), {x.n, x.heads, x.head_dim});
  x.k = view(floats_sized(o.Get("k"), "k", x.n * x.kv_heads * x.head_dim), {x.n, x.kv_heads, x.head_dim});
  x.v = view(floats_sized(o.Get("v"), "v", x.n * x.kv_heads * x.head_dim), {x.n, x.kv_heads, x.head_dim});
  if (!o.Get("sink").IsUndefined()) x.sink = floats_sized(o.Get("sink"), "sink", x.heads);
  x.mask.window = integer_of(o.Get("window"), "window", -1, INT32_MAX);
  x.mask.prefix = integer_of(o.Get("prefix"), "prefix", 0, INT32_MAX);
  x.mask.scale = static_cast<float>(number_of(o.Get("scale"), "scale"));
  x.threads = static_cast<int32_t>(integer_of(o.Get("threads"), "threads", 1, 1024));
  return x;
}

struct Output {
  Napi::Float32Array array;
  float* data;
};

Output make_output(Napi::Env env, Napi::Object result, const char* key, int64_t count) {
  auto array = Napi::Float32Array::New(env, static_cast<size_t>(count));
  result.Set(key, array);
  return {array, array.Data()};
}

Napi::Value forward(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  return guard(env, [&]() -> Napi::Value {
    const sfx_backend* b = backend_here();
    const AttentionInputs x = read_inputs(object_of(info[0], "options"));
    Napi::Object result = Napi::Object::New(env);
    const Output out = make_output(env, result, "out", x.n * x.heads * x.head_dim),
                 lse = make_output(env, result, "lse", x.n * x.heads);
    sfx_tensor o = view(out.data, {x.n, x.heads, x.head_dim});
    const CallStream stream(b, x.threads);
    check(b, b->attention_forward(stream.get(), &x.q, &x.k, &x.v, x.sink, x.cu, x.segments, &x.mask, &o, lse.data),
          "attention_forward");
    check(b, b->synchronize(stream.get()), "synchronize");
    return result;
  });
}

Napi::Value backward(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  return guard(env, [&]() -> Napi::Value {
    const sfx_backend* b = backend_here();
    const Napi::Object options = object_of(info[0], "options");
    const AttentionInputs x = read_inputs(options);
    const int64_t wide = x.n * x.heads * x.head_dim, narrow = x.n * x.kv_heads * x.head_dim;
    const sfx_tensor dout = view(floats_sized(options.Get("dout"), "dout", wide), {x.n, x.heads, x.head_dim});
    const sfx_tensor out = view(floats_sized(options.Get("out"), "out", wide), {x.n, x.heads, x.head_dim});
    const float* lse = floats_sized(options.Get("lse"), "lse", x.n * x.heads);
    Napi::Object result = Napi::Object::New(env);
    const Output dq = make_output(env, result, "dq", wide), dk = make_output(env, result, "dk", narrow),
                 dv = make_output(env, result, "dv", narrow), dsink = make_output(env, result, "dsink", x.heads);
    sfx_tensor dqt = view(dq.data, {x.n, x.heads, x.head_dim}), dkt = view(dk.data, {x.n, x.kv_heads, x.head_dim}),
               dvt = view(dv.data, {x.n, x.kv_heads, x.head_dim});
    const CallStream stream(b, x.threads);
    check(b,
          b->attention_backward(stream.get(), &dout, &x.q, &x.k, &x.v, x.sink, &out, lse, x.cu, x.segments, &x.mask,
                                &dqt, &dkt, &dvt, x.sink ? dsink.data : nullptr),
          "attention_backward");
    check(b, b->synchronize(stream.get()), "synchronize");
    return result;
  });
}

}  // namespace

void init_attention(Napi::Env env, Napi::Object exports) {
  exports.Set("attentionForward", Napi::Function::New(env, forward, "attentionForward"));
  exports.Set("attentionBackward", Napi::Function::New(env, backward, "attentionBackward"));
}

}  // namespace sinkflex
