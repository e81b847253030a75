// sinkAttention and sinkAttentionBackward over plain arrays, on the caller or on a thread of their own. For people who
// want the operator alone, for the golden fixtures and for benches; the engine does not come by here.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <vector>

#include "../backend.h"
#include "../model/tensors.h"
#include "addon.h"
#include "arguments.h"
#include "backend.h"
#include "native_task.h"

namespace sinkflex {

namespace {

// A stream for one call.
class CallStream {
 public:
  CallStream(const sfx_backend* backend, int32_t threads)
      : backend_(backend), stream_(backend->stream_create(threads)) {
    if (stream_ == nullptr) throw Error("SINKFLEX_OUT_OF_MEMORY", "there is no room for a stream of the backend");
  }
  ~CallStream() { backend_->stream_destroy(stream_); }
  CallStream(const CallStream&) = delete;
  CallStream& operator=(const CallStream&) = delete;
  sfx_stream* get() const { return stream_; }

 private:
  const sfx_backend* backend_;
  sfx_stream* stream_;
};

// Arrays of the host on a device: copied there, or back when the call is done. On the CPU every array is itself.
class Staging {
 public:
  Staging(const sfx_backend* backend, sfx_stream* stream, bool apart)
      : backend_(backend), stream_(stream), apart_(apart) {}
  ~Staging() {
    for (const Piece& p : pieces_) backend_->release(p.there);
  }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  template <class T>
  T* there(T* here, int64_t bytes) {
    if (!apart_ || !here) return here;
    void* memory = take(bytes, nullptr);
    check(backend_, backend_->copy(stream_, memory, here, bytes), "copy");
    return static_cast<T*>(memory);
  }
  // Filled by the call; `zeros`: it adds to what is there.
  template <class T>
  T* result(T* here, int64_t bytes, bool zeros = false) {
    if (!apart_ || !here) return here;
    void* memory = take(bytes, here);
    if (zeros) check(backend_, backend_->fill_zero(stream_, memory, bytes), "fill_zero");
    return static_cast<T*>(memory);
  }
  void bring_back() {
    for (const Piece& p : pieces_)
      if (p.here) check(backend_, backend_->copy(stream_, p.here, p.there, p.bytes), "copy");
  }

 private:
  struct Piece {
    void *there, *here;
    int64_t bytes;
  };
  void* take(int64_t bytes, void* here) {
    void* memory = backend_->allocate(std::max<int64_t>(bytes, 1));
    check(backend_, memory ? SFX_OK : SFX_OUT_OF_MEMORY, "allocate");
    pieces_.push_back({memory, here, bytes});
    return memory;
  }
  const sfx_backend* backend_;
  sfx_stream* stream_;
  bool apart_;
  std::vector<Piece> pieces_;
};

// [batch, length, heads, D] somewhere in an array, strides in elements.
struct Input {
  uint8_t* data = nullptr;
  int32_t dtype = SFX_F32;
  int64_t batch = 0, token = 0, head = 0;
};

int64_t bytes_of_element(int32_t dtype) { return dtype == SFX_BF16 ? 2 : 4; }

// Everything of one call, read on the JavaScript thread; run() touches no JavaScript.
struct Call {
  const sfx_backend* backend = nullptr;
  bool device = false;  // its memory is not the host's
  int64_t batch = 1, length = 0, heads = 0, kv_heads = 0, depth = 0;
  int32_t threads = 1, dtype = SFX_F32;
  std::vector<int32_t> cu;  // of one batch entry
  Input q, k, v, dout;
  const float *sink = nullptr, *lse = nullptr;
  sfx_attention_mask mask{};
  sfx_attention_variant variant{};
  uint8_t *out = nullptr, *dq = nullptr, *dk = nullptr, *dv = nullptr;  // dense
  float *written_lse = nullptr, *dsink = nullptr;
  Napi::ObjectReference options, result;  // keep the arrays alive

  void run(bool backward);
};

sfx_tensor tensor_of(const Input& in, int64_t entry, int64_t n, int64_t heads, int64_t depth) {
  sfx_tensor t = view(in.data + entry * in.batch * bytes_of_element(in.dtype), {n, heads, depth});
  t.dtype = in.dtype;
  t.stride[0] = in.token, t.stride[1] = in.head;
  return t;
}

Input dense(uint8_t* data, int32_t dtype, int64_t length, int64_t heads, int64_t depth) {
  return {data, dtype, length * heads * depth, heads * depth, depth};
}

void Call::run(bool backward) {
  const CallStream stream(backend, threads);
  const auto follows = [&](const Input& in) { return !in.data || in.batch == length * in.token; };
  // Entries that follow each other are one packed call.
  const bool packed = batch > 1 && follows(q) && follows(k) && follows(v) && follows(dout);
  std::vector<int32_t> all = cu;
  if (packed)
    for (int64_t i = 1; i < batch; ++i)
      for (size_t j = 1; j < cu.size(); ++j) all.push_back(static_cast<int32_t>(i * length + cu[j]));
  const int64_t n = packed ? batch * length : length, rows = batch * length;
  Staging staging(backend, stream.get(), device);
  const auto extent = [&](const Input& in, int64_t of) {
    return ((batch - 1) * in.batch + (length - 1) * in.token + (of - 1) * in.head + depth) * bytes_of_element(in.dtype);
  };
  const int64_t wide = rows * heads * depth * bytes_of_element(dtype),
                narrow = rows * kv_heads * depth * bytes_of_element(dtype);
  const bool any = rows > 0;
  if (any) {
    q.data = staging.there(q.data, extent(q, heads));
    k.data = staging.there(k.data, extent(k, kv_heads));
    v.data = staging.there(v.data, extent(v, kv_heads));
    sink = staging.there(const_cast<float*>(sink), heads * 4);
    if (variant.document_start)
      variant.document_start = staging.there(const_cast<int32_t*>(variant.document_start), rows * 4);
    if (variant.slopes) variant.slopes = staging.there(const_cast<float*>(variant.slopes), heads * 4);
  }
  if (any && !backward) {
    out = staging.result(out, wide);
    written_lse = staging.result(written_lse, rows * heads * 4);
  } else if (any) {
    out = staging.there(out, wide);
    lse = staging.there(const_cast<float*>(lse), rows * heads * 4);
    if (variant.dlse) variant.dlse = staging.there(const_cast<float*>(variant.dlse), rows * heads * 4);
    dout.data = staging.there(dout.data, extent(dout, heads));
    dq = staging.result(dq, wide);
    dk = staging.result(dk, narrow);
    dv = staging.result(dv, narrow);
    dsink = staging.result(dsink, heads * 4, true);
  }
  for (int64_t i = 0; i < (packed ? 1 : batch); ++i) {
    const sfx_tensor tq = tensor_of(q, i, n, heads, depth), tk = tensor_of(k, i, n, kv_heads, depth),
                     tv = tensor_of(v, i, n, kv_heads, depth);
    sfx_tensor to = tensor_of(dense(out, dtype, length, heads, depth), i, n, heads, depth);
    sfx_attention_variant entry = variant;
    if (entry.document_start) entry.document_start += i * length;
    if (entry.dlse) entry.dlse += i * length * heads;
    sfx_attention_mask m = mask;
    m.variant = &entry;
    const auto segments = static_cast<int64_t>(all.size()) - 1;
    if (!backward) {
      check(backend,
            backend->attention_forward(stream.get(), &tq, &tk, &tv, sink, all.data(), segments, &m, &to,
                                       written_lse + i * length * heads),
            "attention_forward");
      continue;
    }
    const sfx_tensor tdo = tensor_of(dout, i, n, heads, depth);
    sfx_tensor tdq = tensor_of(dense(dq, dtype, length, heads, depth), i, n, heads, depth),
               tdk = tensor_of(dense(dk, dtype, length, kv_heads, depth), i, n, kv_heads, depth),
               tdv = tensor_of(dense(dv, dtype, length, kv_heads, depth), i, n, kv_heads, depth);
    check(backend,
          backend->attention_backward(stream.get(), &tdo, &tq, &tk, &tv, sink, &to, lse + i * length * heads,
                                      all.data(), segments, &m, &tdq, &tdk, &tdv, sink ? dsink : nullptr),
          "attention_backward");
  }
  staging.bring_back();
  check(backend, backend->synchronize(stream.get()), "synchronize");
}

const float* floats_sized(const Napi::Value& value, const std::string& name, int64_t count) {
  const auto a = floats_of(value, name);
  if (static_cast<int64_t>(a.size) != count) throw bad_argument(name, "of " + std::to_string(count) + " elements");
  return a.data;
}

// float32, or bf16 as the Uint16Array of its bits.
Input stored(const Napi::Value& value, const std::string& name, int64_t* count) {
  if (!value.IsTypedArray()) throw bad_argument(name, "a Float32Array, or a Uint16Array of bf16");
  const auto array = value.As<Napi::TypedArray>();
  const auto type = array.TypedArrayType();
  if (type != napi_float32_array && type != napi_uint16_array)
    throw bad_argument(name, "a Float32Array, or a Uint16Array of bf16");
  *count = static_cast<int64_t>(array.ElementLength());
  Input in;
  in.dtype = type == napi_uint16_array ? SFX_BF16 : SFX_F32;
  in.data = static_cast<uint8_t*>(array.ArrayBuffer().Data()) + array.ByteOffset();
  return in;
}

Input strided(const Call& c, const Napi::Object& o, const std::string& name, int64_t heads) {
  int64_t count = 0;
  Input in = stored(o.Get(name), name, &count);
  in.token = heads * c.depth, in.head = c.depth, in.batch = c.length * in.token;
  const Napi::Value strides = object_of(o.Get("strides"), "strides").Get(name);
  if (!strides.IsUndefined()) {
    const Napi::Object s = object_of(strides, "strides." + name);
    constexpr int64_t most = int64_t{1} << 40;
    in.token = integer_of(s.Get("token"), "strides." + name + ".token", 0, most);
    in.head = integer_of(s.Get("head"), "strides." + name + ".head", 0, most);
    if (c.batch > 1) in.batch = integer_of(s.Get("batch"), "strides." + name + ".batch", 0, most);
    const int64_t end =
        c.length == 0 ? 0 : (c.batch - 1) * in.batch + (c.length - 1) * in.token + (heads - 1) * in.head + c.depth;
    if (end > count)
      throw bad_argument(
          name, "of at least " + std::to_string(end) + " elements for its strides, it has " + std::to_string(count));
    return in;
  }
  if (count != c.batch * in.batch) throw bad_argument(name, "of " + std::to_string(c.batch * in.batch) + " elements");
  return in;
}

void read_call(Call& c, const Napi::Object& o) {
  c.backend = backend_of(o);
  c.device = c.backend->device_memory != 0;
  c.heads = integer_of(o.Get("heads"), "heads", 1, 1 << 20);
  c.kv_heads = integer_of(o.Get("kvHeads"), "kvHeads", 1, 1 << 20);
  c.depth = integer_of(o.Get("headDim"), "headDim", 1, 1 << 16);
  if (c.heads % c.kv_heads != 0) throw bad_argument("heads", "a multiple of kvHeads");
  const auto cu = int32s_of(o.Get("cuSeqlens"), "cuSeqlens");
  if (cu.size < 2 || cu.data[0] != 0) throw bad_argument("cuSeqlens", "ascending from 0");
  for (size_t i = 1; i < cu.size; ++i)
    if (cu.data[i] < cu.data[i - 1]) throw bad_argument("cuSeqlens", "ascending from 0");
  c.cu.assign(cu.data, cu.data + cu.size);
  c.length = c.cu.back();
  c.batch = integer_of(o.Get("batch"), "batch", 1, 1 << 20);
  if (c.batch * c.length > INT32_MAX) throw bad_argument("batch", "of at most 2^31 - 1 tokens in all");
  c.q = strided(c, o, "q", c.heads);
  c.k = strided(c, o, "k", c.kv_heads);
  c.v = strided(c, o, "v", c.kv_heads);
  c.dtype = c.q.dtype;
  if (c.k.dtype != c.dtype || c.v.dtype != c.dtype) throw bad_argument("k and v", "stored as q is");
  if (!o.Get("sink").IsUndefined()) c.sink = floats_sized(o.Get("sink"), "sink", c.heads);
  c.mask.window = integer_of(o.Get("window"), "window", -1, INT32_MAX);
  c.mask.prefix = integer_of(o.Get("prefix"), "prefix", 0, INT32_MAX);
  c.mask.scale = static_cast<float>(number_of(o.Get("scale"), "scale"));
  c.variant.sink_function = static_cast<int32_t>(integer_of(o.Get("sinkFunction"), "sinkFunction", 0, 2));
  c.variant.softcap = static_cast<float>(number_of(o.Get("softcap"), "softcap"));
  if (!(c.variant.softcap >= 0)) throw bad_argument("softcap", "at least 0");
  if (!o.Get("slopes").IsUndefined()) c.variant.slopes = floats_sized(o.Get("slopes"), "slopes", c.heads);
  if (!o.Get("documentStart").IsUndefined()) {
    const auto start = int32s_of(o.Get("documentStart"), "documents");
    if (static_cast<int64_t>(start.size) != c.batch * c.length)
      throw bad_argument("documents", "of " + std::to_string(c.batch * c.length) + " elements");
    c.variant.document_start = start.data;
  }
  c.threads = static_cast<int32_t>(integer_of(o.Get("threads"), "threads", 1, 1024));
  c.options = Napi::Persistent(o);
}

// A dense result array in the storage of the inputs.
uint8_t* make_stored(Napi::Env env, Call& c, const char* key, int64_t count) {
  const auto size = static_cast<size_t>(count);
  if (c.dtype == SFX_BF16) {
    auto array = Napi::Uint16Array::New(env, size);
    c.result.Value().Set(key, array);
    return reinterpret_cast<uint8_t*>(array.Data());
  }
  auto array = Napi::Float32Array::New(env, size);
  c.result.Value().Set(key, array);
  return reinterpret_cast<uint8_t*>(array.Data());
}
float* make_floats(Napi::Env env, Call& c, const char* key, int64_t count) {
  auto array = Napi::Float32Array::New(env, static_cast<size_t>(count));
  c.result.Value().Set(key, array);
  return array.Data();
}

Napi::Value start(Napi::Env env, const std::shared_ptr<Call>& call, bool backward, bool async) {
  if (!async) {
    call->run(backward);
    return call->result.Value();
  }
  return run_native(
      env, "sinkflex:attention", std::make_shared<std::atomic<bool>>(false), [call, backward] { call->run(backward); },
      [call](Napi::Env) -> Napi::Value { return call->result.Value(); });
}

Napi::Value forward(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  return guard(env, [&]() -> Napi::Value {
    const auto call = std::make_shared<Call>();
    Call& c = *call;
    read_call(c, object_of(info[0], "options"));
    c.result = Napi::Persistent(Napi::Object::New(env));
    c.out = make_stored(env, c, "out", c.batch * c.length * c.heads * c.depth);
    c.written_lse = make_floats(env, c, "lse", c.batch * c.length * c.heads);
    return start(env, call, false, boolean_of(info[1], "async"));
  });
}

Napi::Value backward(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  return guard(env, [&]() -> Napi::Value {
    const auto call = std::make_shared<Call>();
    Call& c = *call;
    const Napi::Object o = object_of(info[0], "options");
    read_call(c, o);
    const int64_t n = c.batch * c.length, wide = n * c.heads * c.depth, narrow = n * c.kv_heads * c.depth;
    c.dout = strided(c, o, "dout", c.heads);
    int64_t count = 0;
    const Input out = stored(o.Get("out"), "out", &count);
    if (count != wide) throw bad_argument("out", "of " + std::to_string(wide) + " elements");
    if (out.dtype != c.dtype || c.dout.dtype != c.dtype) throw bad_argument("out and dout", "stored as q is");
    c.out = out.data;
    c.lse = floats_sized(o.Get("lse"), "lse", n * c.heads);
    if (!o.Get("dlse").IsUndefined()) c.variant.dlse = floats_sized(o.Get("dlse"), "dlse", n * c.heads);
    c.result = Napi::Persistent(Napi::Object::New(env));
    c.dq = make_stored(env, c, "dq", wide);
    c.dk = make_stored(env, c, "dk", narrow);
    c.dv = make_stored(env, c, "dv", narrow);
    c.dsink = make_floats(env, c, "dsink", c.heads);
    return start(env, call, true, boolean_of(info[1], "async"));
  });
}

}  // namespace

void init_attention(Napi::Env env, Napi::Object exports) {
  exports.Set("attentionForward", Napi::Function::New(env, forward, "attentionForward"));
  exports.Set("attentionBackward", Napi::Function::New(env, backward, "attentionBackward"));
}

}  // namespace sinkflex
