// Generation: requests go to the scheduler, results come back as typed arrays, all of one step in one callback; so do
// the tokens of streamed requests while they are drawn.
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

}  // namespace

// generate(slot, tokens, maxNewTokens, stopTokens: Int32Array, temperature, topK, topP, key: Uint32 x 4 as
// Float64Array, streamed)
Napi::Value EngineWrap::Generate(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  return guard(env, [&]() -> Napi::Value {
    RequireAlive();
    auto g = std::make_unique<Generation>();
    g->sequence = static_cast<int32_t>(integer_of(info[0], "sequence", 0, scheduler_options_.max_sequences - 1));
    const auto tokens = int32s_of(info[1], "tokens");
    if (tokens.size == 0) throw bad_argument("tokens", "at least one token (a turn begins with something to read)");
    for (size_t i = 0; i < tokens.size; ++i)
      if (tokens.data[i] < 0 || tokens.data[i] >= config_.vocab)
        throw bad_argument("tokens[" + std::to_string(i) + "] = " + std::to_string(tokens.data[i]),
                           "from 0 to " + std::to_string(config_.vocab - 1));
    g->input.reserve(tokens.size + 1);
    g->input.assign(tokens.data, tokens.data + tokens.size);
    g->max_new_tokens = static_cast<int32_t>(integer_of(info[2], "maxNewTokens", 1, INT32_MAX));
    const auto stops = int32s_of(info[3], "stopTokens");
    g->stop_tokens.assign(stops.data, stops.data + stops.size);
    const double temperature = number_of(info[4], "temperature");
    if (!(temperature >= 0) || temperature > 1e6) throw bad_argument("temperature", "a number from 0 (greedy) up");
    g->sample.temperature = static_cast<float>(temperature);
    g->sample.top_k = static_cast<int32_t>(integer_of(info[5], "topK", 0, INT32_MAX));
    const double top_p = number_of(info[6], "topP");
    if (!(top_p > 0 && top_p <= 1)) throw bad_argument("topP", "above 0 and at most 1");
    g->sample.top_p = static_cast<float>(top_p);
    const auto key = doubles_of(info[7], "key");
    if (key.size != 4) throw bad_argument("key", "four integers");
    for (int i = 0; i < 4; ++i) {
      if (!(key.data[i] >= 0 && key.data[i] <= 4294967295.0) || key.data[i] != std::floor(key.data[i]))
        throw bad_argument("key[" + std::to_string(i) + "]", "an integer from 0 to 2^32 - 1");
      g->sample.key[i] = static_cast<uint32_t>(key.data[i]);
    }
    g->streamed = boolean_of(info[8], "streamed");
    Scheduler& scheduler = NeedScheduler();
    const auto deferred = Napi::Promise::Deferred::New(env);
    g->ticket = Open({deferred, {}, {}});
    scheduler.submit(std::move(g));
    return deferred.Promise();
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
  listener_.Call({column(&Drawn::sequence), column(&Drawn::token), column(&Drawn::logprob), column(&Drawn::version)});
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
      result.Set("stopReason", Napi::String::New(e, name_of(g->reason)));
      return result;
    };
    Settle(env, g->ticket, build, g->error);
  }
}

}  // namespace sinkflex
