// The native Engine class: owns the trainer and the scheduler, and settles their promises on the loop of the
// environment that made it.
//
// Threads: a scheduler thread (generation) and a task thread (passes), both started at first use. They announce
// finished work through one thread-safe function. Its callback, like everything else that touches JavaScript, runs on
// the loop. The environment's cleanup hook joins both threads before the function goes away; the object keeps itself
// alive while a promise is open.
#ifndef SINKFLEX_ADDON_ENGINE_H
#define SINKFLEX_ADDON_ENGINE_H

#include <napi.h>

#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "../model/scheduler.h"
#include "../model/task_thread.h"
#include "../model/trainer.h"
#include "addon.h"

namespace sinkflex {

class EngineWrap : public Napi::ObjectWrap<EngineWrap> {
 public:
  static Napi::Function Define(Napi::Env env);
  explicit EngineWrap(const Napi::CallbackInfo& info);
  ~EngineWrap() override;

 private:
  // generation (engine_generate.cpp)
  Napi::Value Generate(const Napi::CallbackInfo& info);
  void ResetSequence(const Napi::CallbackInfo& info);
  void AbortSequence(const Napi::CallbackInfo& info);
  void OnTokens(const Napi::CallbackInfo& info);
  void TokenBytesTable(const Napi::CallbackInfo& info);
  void Freeze(const Napi::CallbackInfo& info);
  void TellTokens(Napi::Env env, const std::vector<Drawn>& drawn);
  void SettleGenerations(Napi::Env env);
  // passes (engine_passes.cpp)
  Napi::Value Forward(const Napi::CallbackInfo& info);
  Napi::Value Backward(const Napi::CallbackInfo& info);
  void ZeroGradients(const Napi::CallbackInfo& info);
  void ForgetMoments(const Napi::CallbackInfo& info);
  Napi::Value Gradients(const Napi::CallbackInfo& info);
  Napi::Value OptimizerStep(const Napi::CallbackInfo& info);
  Napi::Value SaveMoments(const Napi::CallbackInfo& info);
  Napi::Value LoadMoments(const Napi::CallbackInfo& info);
  void SettleTasks(Napi::Env env);
  // life (engine.cpp)
  Napi::Value Stats(const Napi::CallbackInfo& info);
  Napi::Value Dispose(const Napi::CallbackInfo& info);

  using Build = std::function<Napi::Value(Napi::Env, Napi::Object kept)>;
  struct Pending {
    Napi::Promise::Deferred deferred;
    Napi::ObjectReference kept;  // what native code writes into; may be empty
    Build build;                 // makes the result on the loop; empty: undefined
  };

  void RequireAlive() const;
  const void* CopyBase(const void* from, int64_t bytes);  // to the device
  Trainer& NeedTrainer();
  TaskThread& NeedTasks();
  Scheduler& NeedScheduler();
  // Registers an open promise; returns its ticket.
  uint64_t Open(Pending pending);
  Napi::Value Post(Napi::Env env, std::function<void()> work, Build build, Napi::ObjectReference kept = {});
  void Settle(Napi::Env env, uint64_t ticket, const Build& build,
              std::exception_ptr error);  // without `build`: the pending one's
  void RejectAll(Napi::Env env);
  void HoldLoop();     // a promise is open: keep the loop and this object alive
  void ReleaseLoop();  // none is
  void Announce();     // any thread
  void StopThreads();
  void OnLoop(Napi::Env env);
  static void CallJs(napi_env env, napi_value callback, void* context, void* data);
  static void CleanupHook(void* self);

  const sfx_backend* backend_ = nullptr;
  Config config_;
  std::shared_ptr<const Parameters> parameters_;
  std::shared_ptr<VersionedSegment> segment_;
  std::optional<VersionedSegment::Reader> base_;  // the frozen base under adapters, pinned as long as the engine lives
  Block base_copy_;                               // on a device: its weights
  int32_t threads_ = 1;
  SchedulerOptions scheduler_options_;
  Moments moments_;

  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<TaskThread> tasks_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unordered_map<uint64_t, Pending> pending_;
  uint64_t next_ticket_ = 1;
  int64_t open_tasks_ = 0;
  std::shared_ptr<const TokenBytes> token_bytes_;
  Napi::FunctionReference listener_;  // of streamed tokens; must not throw
  bool held_ = false, disposed_ = false, torn_down_ = false;
  napi_threadsafe_function announcer_ = nullptr;
  std::thread stopper_;  // dispose() joins the threads away from the loop
  std::atomic<bool> stopped_{false};
  std::vector<Napi::Promise::Deferred> disposals_;
};

// A JavaScript error for a native exception; see guard().
Napi::Error error_of(Napi::Env env, std::exception_ptr error);

}  // namespace sinkflex
#endif
