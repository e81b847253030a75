// Generation: requests go to the scheduler, results come back as typed arrays, all of one step in one callback; so do
// the tokens of streamed requests while they are drawn.
#include <algorithm>
#include <sstream>

#include "arguments.h"
#include "engine.h"

namespace sinkflex {

namespace {

template <typename T>
Napi::Value copied(Napi::Env env, const std::vector<T>& from) {
  auto array = Napi::TypedArrayOf<T>::New(env, from.size(), array_type<T>());
  std::copy(from.begin(), from.end(), array.Data());
  return array;
}

const char* name_of(StopReason reason) {
  switch (reason) {
    case StopReason::kStop:
      return "stop";
    case StopReason::kLength:
      return "length";
    case StopReason::kContext:
      return "context";
    default:
      return "aborted";
  }
}

float number_in(const Napi::Object& o, const char* key, double low, double high) {
  const double value = number_of(o.Get(key), key);
  if (!(value >= low && value <= high)) {
    std::ostringstream expected;
    expected << "from " << low << " to " << high;
    throw bad_argument(key, expected.str());
  }
  return static_cast<float>(value);
}

std::vector<int32_t> token_ids(const Napi::Value& value, const std::string& name, int64_t vocab) {
  const auto ids = int32s_of(value, name);
  for (size_t i = 0; i < ids.size; ++i)
    if (ids.data[i] < 0 || ids.data[i] >= vocab)
      throw bad_argument(name + "[" + std::to_string(i) + "] = " + std::to_string(ids.data[i]),
                         "from 0 to " + std::to_string(vocab - 1));
  return {ids.data, ids.data + ids.size};
}

void read_request(const Napi::Object& o, int64_t vocab, Generation* g) {
  g->input = token_ids(o.Get("tokens"), "tokens", vocab);
  if (g->input.empty()) throw bad_argument("tokens", "at least one token (a turn begins with something to read)");
  g->max_new_tokens = static_cast<int32_t>(integer_of(o.Get("maxNewTokens"), "maxNewTokens", 1, INT32_MAX));
  const auto stops = int32s_of(o.Get("stopTokens"), "stopTokens");
  for (size_t i = 0; i < stops.size; ++i)
    if (stops.data[i] >= 0 && stops.data[i] < vocab) g->stop_tokens.push_back(stops.data[i]);
  const double temperature = number_of(o.Get("temperature"), "temperature");
  if (!(temperature >= 0) || temperature > 1e6) throw bad_argument("temperature", "a number from 0 (greedy) up");
  g->sample.temperature = static_cast<float>(temperature);
  g->sample.top_k = static_cast<int32_t>(integer_of(o.Get("topK"), "topK", 0, INT32_MAX));
  const double top_p = number_of(o.Get("topP"), "topP");
  if (!(top_p > 0 && top_p <= 1)) throw bad_argument("topP", "above 0 and at most 1");
  g->sample.top_p = static_cast<float>(top_p);
  g->sample.min_p = number_in(o, "minP", 0, 1);
  const auto key = doubles_of(o.Get("key"), "key");
  if (key.size != 4) throw bad_argument("key", "four integers");
  for (int i = 0; i < 4; ++i) {
    if (!(key.data[i] >= 0 && key.data[i] <= 4294967295.0) || key.data[i] != std::floor(key.data[i]))
      throw bad_argument("key[" + std::to_string(i) + "]", "an integer from 0 to 2^32 - 1");
    g->sample.key[i] = static_cast<uint32_t>(key.data[i]);
  }
  g->sample.alternatives =
      static_cast<int32_t>(integer_of(o.Get("topLogprobs"), "topLogprobs", 0, std::min<int64_t>(vocab, 1 << 16)));
  LogitRules& rules = g->rules;
  rules.presence = number_in(o, "presencePenalty", -1000, 1000);
  rules.frequency = number_in(o, "frequencyPenalty", -1000, 1000);
  rules.repetition = number_in(o, "repetitionPenalty", 1e-3, 1000);
  rules.min_tokens = static_cast<int32_t>(integer_of(o.Get("minTokens"), "minTokens", 0, INT32_MAX));
  rules.bias_tokens = token_ids(o.Get("biasTokens"), "logitBias", vocab);
  const auto bias = floats_of(o.Get("bias"), "logitBias");
  if (bias.size != rules.bias_tokens.size()) throw bad_argument("logitBias", "one number a token");
  for (size_t i = 0; i < bias.size; ++i)
    if (!(std::abs(bias.data[i]) <= 1e6f)) throw bad_argument("logitBias", "numbers from -1e6 to 1e6");
  rules.bias.assign(bias.data, bias.data + bias.size);
  if (!o.Get("stopStrings").IsArray()) throw bad_argument("stopStrings", "an array of Uint8Array");
  const auto strings = o.Get("stopStrings").As<Napi::Array>();
  for (uint32_t i = 0; i < strings.Length(); ++i) {
    const auto bytes = bytes_of(strings.Get(i), "stopStrings[" + std::to_string(i) + "]");
    if (bytes.size == 0) throw bad_argument("stopStrings[" + std::to_string(i) + "]", "at least one byte");
    g->stops.stops.emplace_back(reinterpret_cast<const char*>(bytes.data), bytes.size);
  }
}

}  // namespace

// generate(slot, request, streamed): the request of kernels/generation.ts with every field given
Napi::Value EngineWrap::Generate(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  return guard(env, [&]() -> Napi::Value {
    RequireAlive();
    auto g = std::make_unique<Generation>();
    g->sequence = static_cast<int32_t>(integer_of(info[0], "sequence", 0, scheduler_options_.max_sequences - 1));
    read_request(object_of(info[1], "request"), config_.vocab, g.get());
    if (!g->stops.stops.empty()) {
      if (!token_bytes_)
        throw bad_argument("stopStrings", "used after setTokenBytes: the engine does not know what tokens say");
      g->stops.table = token_bytes_;
    }
    g->streamed = boolean_of(info[2], "streamed");
    Scheduler& scheduler = NeedScheduler();
    const auto deferred = Napi::Promise::Deferred::New(env);
    g->ticket = Open({deferred, {}, {}});
    scheduler.submit(std::move(g));
    return deferred.Promise();
  });
}

// tokenBytes(bytes: Uint8Array, offsets: Int32Array)
void EngineWrap::TokenBytesTable(const Napi::CallbackInfo& info) {
  guard(info.Env(), [&] {
    const auto bytes = bytes_of(info[0], "bytes");
    const auto offsets = int32s_of(info[1], "offsets");
    for (size_t i = 0; i < offsets.size; ++i)
      if (offsets.data[i] < (i == 0 ? 0 : offsets.data[i - 1]) || static_cast<size_t>(offsets.data[i]) > bytes.size)
        throw bad_argument("offsets", "ascending from 0 to the number of bytes");
    auto table = std::make_shared<TokenBytes>();
    table->bytes.assign(reinterpret_cast<const char*>(bytes.data), bytes.size);
    table->offsets.assign(offsets.data, offsets.data + offsets.size);
    token_bytes_ = std::move(table);
  });
}

void EngineWrap::ResetSequence(const Napi::CallbackInfo& info) {
  guard(info.Env(), [&] {
    if (disposed_ || !scheduler_) return;  // a slot that was never used is empty
    scheduler_->reset(static_cast<int32_t>(integer_of(info[0], "sequence", 0, scheduler_options_.max_sequences - 1)));
  });
}

void EngineWrap::AbortSequence(const Napi::CallbackInfo& info) {
  guard(info.Env(), [&] {
    if (disposed_ || !scheduler_) return;
    scheduler_->abort(static_cast<int32_t>(integer_of(info[0], "sequence", 0, scheduler_options_.max_sequences - 1)));
  });
}

void EngineWrap::Freeze(const Napi::CallbackInfo& info) {
  guard(info.Env(), [&] {
    RequireAlive();
    NeedScheduler().freeze(boolean_of(info[0], "frozen"));
  });
}

// onTokens(listener: (slots: Int32Array, tokens: Int32Array, logprobs: Float32Array, versions: Int32Array) => void)
void EngineWrap::OnTokens(const Napi::CallbackInfo& info) {
  guard(info.Env(), [&] {
    if (!info[0].IsFunction()) throw bad_argument("listener", "a function");
    listener_ = Napi::Persistent(info[0].As<Napi::Function>());
  });
}

void EngineWrap::TellTokens(Napi::Env env, const std::vector<Drawn>& drawn) {
  if (drawn.empty() || listener_.IsEmpty()) return;
  const auto column = [&]<typename T>(T Drawn::* member) {
    std::vector<T> values;
    values.reserve(drawn.size());
    for (const Drawn& d : drawn) values.push_back(d.*member);
    return copied(env, values);
  };
  std::vector<napi_value> columns = {column(&Drawn::sequence), column(&Drawn::token), column(&Drawn::logprob),
                                     column(&Drawn::version)};
  if (std::any_of(drawn.begin(), drawn.end(), [](const Drawn& d) { return !d.alternatives.empty(); })) {
    // Those of all tokens, one after another, and how many each has.
    std::vector<int32_t> counts, tokens;
    std::vector<float> logprobs;
    for (const Drawn& d : drawn) {
      counts.push_back(static_cast<int32_t>(d.alternatives.size()));
      tokens.insert(tokens.end(), d.alternatives.begin(), d.alternatives.end());
      logprobs.insert(logprobs.end(), d.alternative_logprobs.begin(), d.alternative_logprobs.end());
    }
    for (napi_value value :
         {napi_value(copied(env, counts)), napi_value(copied(env, tokens)), napi_value(copied(env, logprobs))})
      columns.push_back(value);
  }
  listener_.Call(columns);
}

void EngineWrap::SettleGenerations(Napi::Env env) {
  if (!scheduler_) return;
  std::vector<Drawn> drawn;
  Scheduler::Finished finished;
  scheduler_->take_results(&drawn, &finished);
  TellTokens(env, drawn);
  for (const auto& g : finished) {
    const Build build = [&](Napi::Env e, Napi::Object) -> Napi::Value {
      Napi::Object result = Napi::Object::New(e);
      result.Set("tokens", copied(e, g->tokens));
      result.Set("logprobs", copied(e, g->logprobs));
      result.Set("versions", copied(e, g->versions));
      result.Set("lineage", Napi::Number::New(e, g->lineage));
      result.Set("cachedTokens", Napi::Number::New(e, static_cast<double>(g->cached)));
      if (g->sample.alternatives > 0) {
        result.Set("topTokens", copied(e, g->alternatives));
        result.Set("topLogprobs", copied(e, g->alternative_logprobs));
      }
      if (scheduler_options_.record_experts && config_.experts > 0)
        result.Set("experts", config_.experts < 255
                                  ? Napi::Value(copied(e, std::vector<uint8_t>(g->experts.begin(), g->experts.end())))
                                  : Napi::Value(copied(e, g->experts)));
      if (g->stop_string >= 0) result.Set("stopString", Napi::Number::New(e, g->stop_string));
      result.Set("stopReason", Napi::String::New(e, name_of(g->reason)));
      return result;
    };
    Settle(env, g->ticket, build, g->error);
  }
}

}  // namespace sinkflex
