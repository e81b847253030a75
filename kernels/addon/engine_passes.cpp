// Packed passes and the optimiser: each call becomes a task of the engine's task thread; they run in the order of the
// calls.
#include "arguments.h"
#include "engine.h"
#include "views.h"

namespace sinkflex {

Napi::Value EngineWrap::Post(Napi::Env env, std::function<void()> work, Build build, Napi::ObjectReference kept) {
  TaskThread& tasks = NeedTasks();
  const auto deferred = Napi::Promise::Deferred::New(env);
  const uint64_t ticket = Open({deferred, std::move(kept), std::move(build)});
  ++open_tasks_;
  tasks.post(ticket, std::move(work));
  return deferred.Promise();
}

void EngineWrap::SettleTasks(Napi::Env env) {
  if (!tasks_) return;
  std::vector<TaskThread::Done> done;
  tasks_->take_done(&done);
  for (const TaskThread::Done& d : done) {
    if (d.ticket == 0) continue;  // nobody waits
    --open_tasks_;
    Settle(env, d.ticket, {}, d.error);
  }
}

namespace {

// Routing replay: [n, layers, top_k] of bytes or 16-bit numbers, the largest for unknown -> [layers, n, top_k] with -1.
template <typename T>
void read_experts(Span<T> from, const Config& c, PackedBatch* batch) {
  const size_t n = batch->ids.size(), layers = static_cast<size_t>(c.layers), k = static_cast<size_t>(c.top_k);
  if (c.experts == 0) throw bad_argument("experts", "left out: the model has none");
  if (from.size != n * layers * k) throw bad_argument("experts", "as long as tokens x layers x experts a token");
  constexpr T unknown = static_cast<T>(-1);
  batch->experts.resize(from.size);
  for (size_t t = 0; t < n; ++t)
    for (size_t l = 0; l < layers; ++l) {
      const T* row = from.data + (t * layers + l) * k;
      int32_t* to = batch->experts.data() + (l * n + t) * k;
      for (size_t j = 0; j < k; ++j) {
        to[j] = row[0] == unknown ? -1 : static_cast<int32_t>(row[j]);
        const bool twice = to[j] >= 0 && std::find(to, to + j, to[j]) != to + j;
        if (to[j] >= c.experts || twice)
          throw bad_argument("experts of token " + std::to_string(t) + ", layer " + std::to_string(l),
                             "different ids below " + std::to_string(c.experts) + ", or unknown");
      }
    }
}

}  // namespace

// forward(ids, cuSeqlens, mask | undefined, temperature, keep: 0 nothing, 1 everything, 2 layer inputs, experts |
// undefined, hidden: boolean) -> {logprobs, entropy, lineage, version, routerAuxLoss, hidden: [segments, hidden] or
// absent}
Napi::Value EngineWrap::Forward(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  return guard(env, [&]() -> Napi::Value {
    RequireAlive();
    const auto ids = int32s_of(info[0], "ids");
    const auto cu = int32s_of(info[1], "cuSeqlens");
    if (ids.size == 0 || ids.size > INT32_MAX) throw bad_argument("ids", "from 1 to 2^31 - 1 tokens");
    if (cu.size < 2 || cu.data[0] != 0 || cu.data[cu.size - 1] != static_cast<int32_t>(ids.size))
      throw bad_argument("cuSeqlens", "ascending from 0 to the number of tokens");
    for (size_t i = 1; i < cu.size; ++i)
      if (cu.data[i] < cu.data[i - 1]) throw bad_argument("cuSeqlens", "ascending from 0 to the number of tokens");
    for (size_t i = 0; i < ids.size; ++i)
      if (ids.data[i] < 0 || ids.data[i] >= config_.vocab)
        throw bad_argument("ids[" + std::to_string(i) + "] = " + std::to_string(ids.data[i]),
                           "from 0 to " + std::to_string(config_.vocab - 1));
    auto batch = std::make_shared<PackedBatch>();
    batch->ids.assign(ids.data, ids.data + ids.size);
    batch->cu_seqlens.assign(cu.data, cu.data + cu.size);
    if (!info[2].IsUndefined()) {
      const auto mask = bytes_of(info[2], "mask");
      if (mask.size != ids.size) throw bad_argument("mask", "as long as ids");
      batch->mask.assign(mask.data, mask.data + mask.size);
    }
    if (info[5].IsTypedArray() && info[5].As<Napi::TypedArray>().TypedArrayType() == napi_uint16_array)
      read_experts(array_of<uint16_t>(info[5], "experts", "a Uint8Array or Uint16Array"), config_, batch.get());
    else if (!info[5].IsUndefined())
      read_experts(array_of<uint8_t>(info[5], "experts", "a Uint8Array or Uint16Array"), config_, batch.get());
    const float temperature = static_cast<float>(number_of(info[3], "temperature"));
    if (!(temperature > 0)) throw bad_argument("temperature", "above 0");
    const Keep keep = static_cast<Keep>(integer_of(info[4], "keep", 0, 2));

    Napi::Object result = Napi::Object::New(env);
    auto logprobs = Napi::Float32Array::New(env, ids.size), entropy = Napi::Float32Array::New(env, ids.size);
    result.Set("logprobs", logprobs);
    result.Set("entropy", entropy);
    float* last_hidden = nullptr;
    if (info[6].ToBoolean()) {
      auto hidden = Napi::Float32Array::New(env, (cu.size - 1) * static_cast<size_t>(config_.hidden));
      result.Set("hidden", hidden);
      last_hidden = hidden.Data();
    }
    auto version = std::make_shared<Version>();
    auto aux = std::make_shared<double>(0);
    Trainer* trainer = &NeedTrainer();
    float* lp = logprobs.Data();  // valid while `result` is kept
    float* en = entropy.Data();
    return Post(
        env,
        [=] {
          *version = trainer->forward(*batch, temperature, keep, lp, en, last_hidden);
          *aux = trainer->router_aux_loss();
        },
        [=](Napi::Env e, Napi::Object kept) -> Napi::Value {
          kept.Set("lineage", Napi::Number::New(e, version->lineage));
          kept.Set("version", Napi::Number::New(e, version->version));
          kept.Set("routerAuxLoss", Napi::Number::New(e, *aux));
          return kept;
        },
        Napi::Persistent(result));
  });
}

// backward(dLogprobs, dEntropy | undefined, dRouterAuxLoss)
Napi::Value EngineWrap::Backward(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  return guard(env, [&]() -> Napi::Value {
    RequireAlive();
    const auto d = floats_of(info[0], "dLogprobs");
    auto dlogprobs = std::make_shared<std::vector<float>>(d.data, d.data + d.size);
    auto dentropy = std::make_shared<std::vector<float>>();
    if (!info[1].IsUndefined()) {
      const auto e = floats_of(info[1], "dEntropy");
      if (e.size != d.size) throw bad_argument("dEntropy", "as long as dLogprobs");
      dentropy->assign(e.data, e.data + e.size);
    }
    const double daux = number_of(info[2], "dRouterAuxLoss");
    if (daux != 0 && config_.experts == 0) throw bad_argument("dRouterAuxLoss", "0: the model has no router");
    Trainer* trainer = &NeedTrainer();
    return Post(env,
                [=] {
                  trainer->backward(dlogprobs->data(), dentropy->empty() ? nullptr : dentropy->data(),
                                    static_cast<int64_t>(dlogprobs->size()), daux);
                },
                {});
  });
}

void EngineWrap::ZeroGradients(const Napi::CallbackInfo& info) {
  guard(info.Env(), [&] {
    RequireAlive();
    Trainer* trainer = &NeedTrainer();
    NeedTasks().post(0, [=] { trainer->zero_gradients(); });
  });
}

void EngineWrap::ForgetMoments(const Napi::CallbackInfo& info) {
  guard(info.Env(), [&] {
    RequireAlive();
    Trainer* trainer = &NeedTrainer();
    NeedTasks().post(0, [=] { trainer->forget_moments(); });
  });
}

// The whole gradient section as one Float32Array, a view at the offsets of the layout. The memory lives as long as the
// view or the engine.
Napi::Value EngineWrap::Gradients(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  return guard(env, [&]() -> Napi::Value {
    RequireAlive();
    if (open_tasks_ > 0)
      throw Error("SINKFLEX_ENGINE_BUSY", "passes are under way: await them before you read or change gradients");
    if (tasks_) tasks_->wait_idle();  // at most a zeroGradients
    const std::shared_ptr<Block> block = NeedTrainer().gradients();
    const size_t bytes = static_cast<size_t>(block->bytes());
    const Napi::ArrayBuffer buffer = view_of(env, block->data(), bytes, block);
    return Napi::Float32Array::New(env, bytes / sizeof(float), buffer, 0);
  });
}

// optimizerStep({lr, beta1, beta2, eps, weightDecay, maxGradNorm (0: none), lineage, version}, out: Uint8Array |
// undefined)
// -> {gradNorm}; with `out` the step of a shard
Napi::Value EngineWrap::OptimizerStep(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  return guard(env, [&]() -> Napi::Value {
    RequireAlive();
    const Napi::Object o = object_of(info[0], "options");
    StepOptions s;
    auto range = [&](const char* key, double low, double below) {
      const double value = number_of(o.Get(key), key);
      if (!(value >= low && value < below))
        throw bad_argument(key, "from " + std::to_string(low) + " to below " + std::to_string(below));
      return value;
    };
    s.lr = range("lr", 0, 1e9);
    s.beta1 = range("beta1", 0, 1);
    s.beta2 = range("beta2", 0, 1);
    s.eps = range("eps", 0, 1e9);
    s.weight_decay = range("weightDecay", 0, 1e9);
    s.max_grad_norm = range("maxGradNorm", 0, 1e30);
    s.lineage = static_cast<uint32_t>(integer_of(o.Get("lineage"), "lineage", 0, (1 << 24) - 1));
    s.version = static_cast<uint32_t>(integer_of(o.Get("version"), "version", 0, UINT32_MAX));
    Trainer* trainer = &NeedTrainer();
    auto norm = std::make_shared<double>(0);
    const std::atomic<bool>* stop = NeedTasks().stopping();
    const auto build = [=](Napi::Env e, Napi::Object) -> Napi::Value {
      Napi::Object r = Napi::Object::New(e);
      r.Set("gradNorm", Napi::Number::New(e, *norm));
      return r;
    };
    if (info[1].IsUndefined()) return Post(env, [=] { *norm = trainer->step(s, stop); }, build);
    const auto out = bytes_of(info[1], "out");
    uint8_t* const to = const_cast<uint8_t*>(out.data);  // valid while the array is kept
    const int64_t bytes = static_cast<int64_t>(out.size);
    return Post(
        env, [=] { *norm = trainer->step_shard(s, to, bytes); }, build, Napi::Persistent(info[1].As<Napi::Object>()));
  });
}

// saveMoments(path, header)
Napi::Value EngineWrap::SaveMoments(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  return guard(env, [&]() -> Napi::Value {
    RequireAlive();
    const std::string path = string_of(info[0], "path");
    const auto bytes = bytes_of(info[1], "header");
    const std::string header(reinterpret_cast<const char*>(bytes.data), bytes.size);
    Trainer* trainer = &NeedTrainer();
    return Post(env, [=] { trainer->save_moments(path, header); }, {});
  });
}

// loadMoments(path, from: Float64Array, to: Float64Array, bytes: Float64Array, step): pieces of the file and where in
// the block of moments they belong
Napi::Value EngineWrap::LoadMoments(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  return guard(env, [&]() -> Napi::Value {
    RequireAlive();
    const std::string path = string_of(info[0], "path");
    const auto from = doubles_of(info[1], "from"), to = doubles_of(info[2], "to"), bytes = doubles_of(info[3], "bytes");
    if (from.size != to.size || to.size != bytes.size) throw bad_argument("bytes", "as long as from and to");
    std::vector<MomentPiece> pieces;
    for (size_t i = 0; i < from.size; ++i)
      pieces.push_back(
          {static_cast<int64_t>(from.data[i]), static_cast<int64_t>(to.data[i]), static_cast<int64_t>(bytes.data[i])});
    const int64_t step = integer_of(info[4], "step", 0, int64_t{1} << 52);
    Trainer* trainer = &NeedTrainer();
    return Post(env, [=] { trainer->load_moments(path, pieces, step); }, {});
  });
}

}  // namespace sinkflex
