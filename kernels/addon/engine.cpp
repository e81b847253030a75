// Life of the native Engine: construction from plain objects, promises, statistics, disposal.
#include "engine.h"

#include "arguments.h"
#include "backend.h"
#include "engine_options.h"
#include "segment.h"

namespace sinkflex {

Napi::Error error_of(Napi::Env env, std::exception_ptr error) {
  try {
    guard(env, [&] { std::rethrow_exception(error); });
  } catch (const Napi::Error& e) {
    return e;
  }
  return make_error(env, "SINKFLEX_INTERNAL", "an error without a cause");
}

Napi::Function EngineWrap::Define(Napi::Env env) {
  return DefineClass(env, "Engine",
                     {
                         InstanceMethod<&EngineWrap::Generate>("generate"),
                         InstanceMethod<&EngineWrap::ResetSequence>("resetSequence"),
                         InstanceMethod<&EngineWrap::AbortSequence>("abortSequence"),
                         InstanceMethod<&EngineWrap::OnTokens>("onTokens"),
                         InstanceMethod<&EngineWrap::TokenBytesTable>("tokenBytes"),
                         InstanceMethod<&EngineWrap::Freeze>("freeze"),
                         InstanceMethod<&EngineWrap::Forward>("forward"),
                         InstanceMethod<&EngineWrap::Backward>("backward"),
                         InstanceMethod<&EngineWrap::ZeroGradients>("zeroGradients"),
                         InstanceMethod<&EngineWrap::ForgetMoments>("forgetMoments"),
                         InstanceMethod<&EngineWrap::Gradients>("gradients"),
                         InstanceMethod<&EngineWrap::OptimizerStep>("optimizerStep"),
                         InstanceMethod<&EngineWrap::SaveMoments>("saveMoments"),
                         InstanceMethod<&EngineWrap::LoadMoments>("loadMoments"),
                         InstanceMethod<&EngineWrap::Stats>("stats"),
                         InstanceMethod<&EngineWrap::Dispose>("dispose"),
                     });
}

EngineWrap::EngineWrap(const Napi::CallbackInfo& info) : Napi::ObjectWrap<EngineWrap>(info) {
  const Napi::Env env = info.Env();
  guard(env, [&] {
    segment_ = UnwrapSegment(info[0]);
    config_ = read_config(object_of(info[1], "config"));
    const Napi::Object options = object_of(info[3], "options");
    backend_ = backend_of(options);
    const Napi::Object layout = object_of(info[2], "layout");
    auto start_of = [](const Napi::Object& of) {
      return integer_of(of.Get("dataStart"), "layout.dataStart", 0, int64_t{1} << 40);
    };
    auto bytes_in = [](const Napi::Object& of) {
      return integer_of(of.Get("dataBytes"), "layout.dataBytes", 0, int64_t{1} << 52);
    };
    if (info[4].IsUndefined()) {
      parameters_ = std::make_shared<const Parameters>(config_, read_tensors(layout.Get("tensors")), start_of(layout),
                                                       bytes_in(layout));
    } else {
      const Napi::Object base = object_of(info[4], "base"), under = object_of(base.Get("layout"), "base.layout");
      const auto segment = UnwrapSegment(base.Get("segment"));
      auto whole = std::make_shared<const Parameters>(config_, read_tensors(under.Get("tensors")), start_of(under),
                                                      bytes_in(under));
      if (static_cast<uint64_t>(whole->data_start() + whole->data_bytes()) > segment->slot_bytes())
        throw Error("SINKFLEX_STORE_MISMATCH", "the slots of the base are smaller than the model's image");
      Version version;
      base_.emplace(segment);
      const uint8_t* slot = base_->pin(&version);
      const void* data = slot + whole->data_start();
      if (backend_->device_memory) data = CopyBase(data, whole->data_bytes());
      parameters_ = std::make_shared<const Parameters>(config_, read_tensors(layout.Get("tensors")), start_of(layout),
                                                       bytes_in(layout), whole, data);
    }
    if (static_cast<uint64_t>(parameters_->data_start() + parameters_->data_bytes()) > segment_->slot_bytes())
      throw Error("SINKFLEX_STORE_MISMATCH", "the store's slots hold " + std::to_string(segment_->slot_bytes()) +
                                                 " bytes, the model's image needs " +
                                                 std::to_string(parameters_->data_start() + parameters_->data_bytes()));
    threads_ = static_cast<int32_t>(integer_of(options.Get("threads"), "threads", 1, 1024));
    scheduler_options_.threads = threads_;
    scheduler_options_.max_sequences =
        static_cast<int32_t>(integer_of(options.Get("maxSequences"), "maxSequences", 1, 1 << 16));
    scheduler_options_.max_sequence_tokens =
        static_cast<int32_t>(integer_of(options.Get("maxSequenceTokens"), "maxSequenceTokens", 2, 1 << 24));
    scheduler_options_.step_rows = integer_of(options.Get("maxNumBatchedTokens"), "maxNumBatchedTokens", 1, 1 << 20);
    const int64_t page = PagedPass::kPageTokens,
                  sequence_pages = (scheduler_options_.max_sequence_tokens + page - 1) / page;
    const int64_t cache_tokens =
        integer_of(options.Get("cacheTokens"), "cacheTokens", sequence_pages * page, int64_t{1} << 36);
    scheduler_options_.cache_pages = cache_tokens / page;
    scheduler_options_.share_prefixes = boolean_of(options.Get("prefixCaching"), "prefixCaching");
    scheduler_options_.record_experts = boolean_of(options.Get("recordExperts"), "recordExperts");
    moments_ = read_moment_layout(object_of(options.Get("moments"), "moments"), parameters_->tensors().size());
    const std::string update = string_of(options.Get("cacheOnUpdate"), "cacheOnUpdate");
    if (update == "recomputed")
      scheduler_options_.on_update = CacheUpdate::kRecomputed;
    else if (update == "dropped")
      scheduler_options_.on_update = CacheUpdate::kDropped;
    else if (update != "kept")
      throw bad_argument("cacheOnUpdate", "kept, recomputed or dropped");
  });
  const napi_status status =
      napi_create_threadsafe_function(env, nullptr, nullptr, Napi::String::New(env, "sinkflex engine"), 0, 1, nullptr,
                                      nullptr, this, &EngineWrap::CallJs, &announcer_);
  if (status != napi_ok)
    throw make_error(env, "SINKFLEX_INTERNAL", "the engine could not make its thread-safe function");
  napi_unref_threadsafe_function(env, announcer_);
  // Added after the function's own hook, so it runs before it.
  napi_add_env_cleanup_hook(env, &EngineWrap::CleanupHook, this);
}

const void* EngineWrap::CopyBase(const void* from, int64_t bytes) {
  base_copy_ = Block(backend_, bytes);
  sfx_stream* const stream = backend_->stream_create(1);
  const int32_t copied = backend_->copy(stream, base_copy_.data(), from, bytes);
  const int32_t done = backend_->synchronize(stream);
  backend_->stream_destroy(stream);
  check(backend_, copied != SFX_OK ? copied : done, "copy");
  return base_copy_.data();
}

EngineWrap::~EngineWrap() {
  if (torn_down_ || !announcer_) return;
  StopThreads();
  napi_remove_env_cleanup_hook(Env(), &EngineWrap::CleanupHook, this);
  napi_release_threadsafe_function(announcer_, napi_tsfn_abort);
}

void EngineWrap::CleanupHook(void* data) {
  EngineWrap* self = static_cast<EngineWrap*>(data);
  self->StopThreads();
  self->torn_down_ = true;
  napi_release_threadsafe_function(self->announcer_, napi_tsfn_abort);
}

void EngineWrap::StopThreads() {
  if (stopper_.joinable()) stopper_.join();
  if (tasks_) tasks_->stop();
  if (scheduler_) scheduler_->stop();
}

void EngineWrap::RequireAlive() const {
  if (disposed_) throw Error("SINKFLEX_ENGINE_DISPOSED", "the engine was disposed");
}

TaskThread& EngineWrap::NeedTasks() {
  if (!tasks_) tasks_ = std::make_unique<TaskThread>([this] { Announce(); });
  return *tasks_;
}

Trainer& EngineWrap::NeedTrainer() {
  if (!trainer_) trainer_ = std::make_unique<Trainer>(backend_, config_, parameters_, segment_, threads_, moments_);
  return *trainer_;
}

Scheduler& EngineWrap::NeedScheduler() {
  if (!scheduler_)
    scheduler_ = std::make_unique<Scheduler>(backend_, config_, parameters_, segment_, scheduler_options_,
                                             [this] { Announce(); });
  return *scheduler_;
}

void EngineWrap::Announce() { napi_call_threadsafe_function(announcer_, nullptr, napi_tsfn_nonblocking); }

void EngineWrap::CallJs(napi_env env, napi_value, void* context, void*) {
  if (!env) return;  // the environment is going away
  EngineWrap* self = static_cast<EngineWrap*>(context);
  const Napi::Env e(env);
  const Napi::HandleScope scope(e);
  self->OnLoop(e);
}

void EngineWrap::OnLoop(Napi::Env env) {
  SettleTasks(env);
  SettleGenerations(env);
  if (stopped_ && stopper_.joinable()) {
    stopper_.join();
    RejectAll(env);
    tasks_.reset();
    scheduler_.reset();
    trainer_.reset();
    for (auto& d : disposals_) d.Resolve(env.Undefined());
    disposals_.clear();
  }
  if (pending_.empty() && disposals_.empty()) ReleaseLoop();
}

uint64_t EngineWrap::Open(Pending pending) {
  const uint64_t ticket = next_ticket_++;
  pending_.emplace(ticket, std::move(pending));
  HoldLoop();
  return ticket;
}

void EngineWrap::HoldLoop() {
  if (held_) return;
  held_ = true;
  Ref();
  napi_ref_threadsafe_function(Env(), announcer_);
}

void EngineWrap::ReleaseLoop() {
  if (!held_) return;
  held_ = false;
  napi_unref_threadsafe_function(Env(), announcer_);
  Unref();
}

void EngineWrap::Settle(Napi::Env env, uint64_t ticket, const Build& build, std::exception_ptr error) {
  auto found = pending_.find(ticket);
  if (found == pending_.end()) return;
  const Pending p = std::move(found->second);
  pending_.erase(found);
  if (error) {
    p.deferred.Reject(error_of(env, error).Value());
    return;
  }
  const Build& make = build ? build : p.build;
  p.deferred.Resolve(make ? make(env, p.kept.IsEmpty() ? Napi::Object() : p.kept.Value()) : env.Undefined());
}

void EngineWrap::RejectAll(Napi::Env env) {
  for (auto& [ticket, p] : pending_)
    p.deferred.Reject(make_error(env, "SINKFLEX_ENGINE_DISPOSED", "the engine was disposed").Value());
  pending_.clear();
  open_tasks_ = 0;
}

Napi::Value EngineWrap::Dispose(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  auto deferred = Napi::Promise::Deferred::New(env);
  if (disposed_ && !stopper_.joinable()) {
    deferred.Resolve(env.Undefined());
    return deferred.Promise();
  }
  disposals_.push_back(deferred);
  HoldLoop();
  if (!disposed_) {
    disposed_ = true;
    stopper_ = std::thread([this] {
      if (tasks_) tasks_->stop();
      if (scheduler_) scheduler_->stop();
      stopped_ = true;
      Announce();
    });
  }
  return deferred.Promise();
}

Napi::Value EngineWrap::Stats(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  Napi::Object o = Napi::Object::New(env);
  auto put = [&](const char* key, double value) { o.Set(key, Napi::Number::New(env, value)); };
  auto seconds = [](int64_t ns) { return static_cast<double>(ns) * 1e-9; };
  const GenerationCounters none;
  const GenerationCounters& g = scheduler_ ? scheduler_->counters : none;
  put("steps", static_cast<double>(g.steps));
  put("rows", static_cast<double>(g.rows));
  put("generatedTokens", static_cast<double>(g.generated));
  put("finishedRequests", static_cast<double>(g.finished));
  put("largestStep", static_cast<double>(g.largest_step));
  put("versionsSeen", static_cast<double>(g.versions_seen));
  put("stepSeconds", seconds(g.step_ns));
  put("stepPassSeconds", seconds(g.pass_ns));
  put("prefixQueries", static_cast<double>(g.prefix_queries));
  put("prefixHits", static_cast<double>(g.prefix_hits));
  put("preemptions", static_cast<double>(g.preemptions));
  put("cachePages", static_cast<double>(scheduler_options_.cache_pages));
  put("cachePagesUsed", static_cast<double>(g.pages_used));
  put("cachePagesKept", static_cast<double>(g.pages_kept));
  put("cacheBytes", static_cast<double>(g.cache_bytes));
  const TrainingCounters idle;
  const TrainingCounters& t = trainer_ ? trainer_->counters : idle;
  put("forwardPasses", static_cast<double>(t.forward_passes));
  put("forwardTokens", static_cast<double>(t.forward_tokens));
  put("forwardSeconds", seconds(t.forward_ns));
  put("backwardPasses", static_cast<double>(t.backward_passes));
  put("backwardTokens", static_cast<double>(t.backward_tokens));
  put("backwardSeconds", seconds(t.backward_ns));
  put("optimizerSteps", static_cast<double>(t.optimizer_steps));
  put("optimizerSeconds", seconds(t.optimizer_ns));
  put("activationBytes", static_cast<double>(t.activation_bytes + g.activation_bytes));
  put("workspaceBytes", static_cast<double>(t.workspace_bytes));
  put("logitsBytes", static_cast<double>(t.logits_bytes));
  put("gradientBytes", static_cast<double>(t.gradient_bytes));
  put("optimizerBytes", static_cast<double>(t.optimizer_bytes));
  return o;
}

namespace {

// passMemory(config, lengths: Float64Array, rows, keep, threads) -> {activations, workspace, logits}; allocates nothing
Napi::Value PassMemoryOf(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  return guard(env, [&]() -> Napi::Value {
    const Config config = read_config(object_of(info[0], "config"));
    const auto lengths = doubles_of(info[1], "lengths");
    const PassMemory m = TrainingPass::measure(
        cpu_backend(), config, std::vector<int64_t>(lengths.data, lengths.data + lengths.size),
        integer_of(info[2], "rows", 0, int64_t{1} << 40), static_cast<Keep>(integer_of(info[3], "keep", 0, 2)),
        static_cast<int32_t>(integer_of(info[4], "threads", 1, 1024)));
    Napi::Object o = Napi::Object::New(env);
    o.Set("activations", static_cast<double>(m.activations));
    o.Set("workspace", static_cast<double>(m.workspace));
    o.Set("logits", static_cast<double>(m.logits));
    return o;
  });
}

}  // namespace

void init_engine(Napi::Env env, Napi::Object exports) {
  exports.Set("passMemory", Napi::Function::New(env, PassMemoryOf, "passMemory"));
  exports.Set("Engine", EngineWrap::Define(env));
}

}  // namespace sinkflex
