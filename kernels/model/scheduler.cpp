#include "scheduler.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>

namespace sinkflex {

namespace {
int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}
}  // namespace

Scheduler::Scheduler(const sfx_backend* backend, const Config& config, std::shared_ptr<const Parameters> parameters,
                     std::shared_ptr<VersionedSegment> segment, const SchedulerOptions& options,
                     std::function<void()> announce)
    : backend_(backend),
      config_(config),
      parameters_(std::move(parameters)),
      segment_(std::move(segment)),
      options_(options),
      announce_(std::move(announce)),
      cache_(options.cache_pages),
      sequences_(static_cast<size_t>(options.max_sequences)) {
  thread_ = std::thread([this] { run(); });
}

Scheduler::~Scheduler() { stop(); }

void Scheduler::stop() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Scheduler::submit(std::unique_ptr<Generation> generation) {
  bool wake;
  {
    std::lock_guard lock(mutex_);
    const int32_t sequence = generation->sequence;
    commands_.push_back({Command::kSubmit, sequence, std::move(generation)});
    has_commands_ = true;
    wake = sleeping_;
  }
  if (wake) wake_.notify_one();
}

void Scheduler::reset(int32_t sequence) {  // needs no wake: it matters only to a submit that follows
  std::lock_guard lock(mutex_);
  commands_.push_back({Command::kReset, sequence, nullptr});
  has_commands_ = true;
}

void Scheduler::abort(int32_t sequence) {
  bool wake;
  {
    std::lock_guard lock(mutex_);
    commands_.push_back({Command::kAbort, sequence, nullptr});
    has_commands_ = true;
    wake = sleeping_;
  }
  if (wake) wake_.notify_one();
}

void Scheduler::take_results(std::vector<Drawn>* drawn, Finished* finished) {
  std::lock_guard lock(mutex_);
  drawn->swap(told_);
  finished->swap(finished_);
}

void Scheduler::run() {
  reset_float_environment();
  while (!stop_) {
    drain();
    if (!active_.empty()) {
      try {
        step();
      } catch (...) {
        const std::exception_ptr error = std::current_exception();
        cache_.clear();
        while (!active_.empty()) fail(active_.size() - 1, error);
      }
    }
    if (active_.empty() && reader_ &&
        !frozen_) {  // an idle engine holds no slot; let go before anyone learns that it is idle
      reader_->release();
      version_.reset();
    }
    announce_results();
    if (!active_.empty()) continue;
    std::unique_lock lock(mutex_);
    sleeping_ = true;
    wake_.wait(lock, [this] { return stop_ || !commands_.empty(); });
    sleeping_ = false;
  }
  active_.clear();
  pass_.reset();
  weights_.reset();
  reader_.reset();
  if (stream_) backend_->stream_destroy(stream_);
  stream_ = nullptr;
}

void Scheduler::drain() {
  if (!has_commands_) return;
  {
    std::lock_guard lock(mutex_);
    taken_.swap(commands_);
    has_commands_ = false;
  }
  for (Command& c : taken_) {
    Sequence& s = sequences_[static_cast<size_t>(c.sequence)];
    if (c.kind == Command::kSubmit) {
      begin(std::move(c.generation));
    } else if (c.kind == Command::kReset) {
      drop_pages(s);
      s = Sequence();
    } else if (s.active) {
      for (size_t i = 0; i < active_.size(); ++i)
        if (active_[i].get() == s.active) {
          finish(i, StopReason::kAborted);
          break;
        }
    }
  }
  taken_.clear();
}

void Scheduler::begin(std::unique_ptr<Generation> g) {
  Sequence& s = sequences_[static_cast<size_t>(g->sequence)];
  if (s.broken) {
    g->error = std::make_exception_ptr(
        Error("SINKFLEX_SEQUENCE_CLOSED", "a step failed while this sequence was generating: close it"));
    done_.push_back(std::move(g));
    return;
  }
  // There must be room for the input and one token more.
  if (static_cast<int64_t>(s.ids.size() + g->input.size()) + 1 > options_.max_sequence_tokens) {
    g->reason = StopReason::kContext;
    done_.push_back(std::move(g));
    return;
  }
  g->known = static_cast<int64_t>(s.ids.size());
  g->begun = std::max<int64_t>(g->known - 1, 0);  // the last one was drawn, not read
  s.ids.insert(s.ids.end(), g->input.begin(), g->input.end());
  const int64_t room = options_.max_sequence_tokens - static_cast<int64_t>(s.ids.size());
  const size_t most = static_cast<size_t>(std::min<int64_t>(g->max_new_tokens, room));
  g->tokens.reserve(most);
  g->versions.reserve(most);
  g->logprobs.reserve(most);
  g->rules.begin(s.ids, g->stop_tokens);
  counters.prefix_queries += static_cast<int64_t>(s.ids.size()) - s.length;
  s.active = g.get();
  active_.push_back(std::move(g));
}

void Scheduler::step() {
  const int64_t start = now_ns();
  if (!pass_) {
    stream_ = backend_->stream_create(options_.threads);
    pass_ = std::make_unique<PagedPass>(backend_, stream_, config_, options_.step_rows, options_.max_sequences,
                                        options_.max_sequence_tokens, options_.cache_pages, options_.record_experts);
    weights_.emplace(backend_, parameters_);
    reader_.emplace(segment_);
    active_.reserve(static_cast<size_t>(options_.max_sequences));
    counters.cache_bytes = pass_->cache_bytes();
    counters.activation_bytes = pass_->activation_bytes();
  }
  ++step_;
  if (!version_ || (!frozen_ && !reader_->is_current())) take_version();
  schedule();
  const int64_t pass_start = now_ns();
  pass_->run(weights_->weights());
  const int64_t pass_end = now_ns();
  collect();

  ++counters.steps;
  counters.rows += pass_->rows();
  if (pass_->rows() > counters.largest_step) counters.largest_step = pass_->rows();
  counters.pass_ns += pass_end - pass_start;
  counters.step_ns += now_ns() - start;
}

void Scheduler::take_version() {
  Version version;
  const uint8_t* slot = reader_->pin(&version);
  weights_->take(stream_, slot, version);
  version_ = version;
  ++counters.versions_seen;
  if (cached_ && cached_->lineage == version.lineage && cached_->version == version.version) return;
  cached_ = version;
  cache_.clear();
  for (Sequence& s : sequences_) {
    if (s.length == 0) continue;
    if (options_.on_update == CacheUpdate::kRecomputed || (options_.on_update == CacheUpdate::kDropped && !s.active))
      drop_pages(s);
    else
      s.pure = false;
  }
}

void Scheduler::collect() {
  for (size_t i = active_.size(); i-- > 0;) {
    Generation& g = *active_[i];
    if (g.draw < 0) continue;
    Sequence& s = sequences_[static_cast<size_t>(g.sequence)];
    const int32_t token = pass_->token(g.draw);
    if (!std::isfinite(pass_->logprob(g.draw))) {
      fail(i,
           std::make_exception_ptr(Error("SINKFLEX_ENGINE_NOT_FINITE",
                                         "the weights of version " + std::to_string(version_->lineage) + "." +
                                             std::to_string(version_->version) + " give logits that are not finite")));
      continue;
    }
    if (g.tokens.empty()) g.lineage = version_->lineage;
    g.tokens.push_back(token);
    g.versions.push_back(static_cast<int32_t>(version_->version));
    g.logprobs.push_back(pass_->logprob(g.draw));
    s.ids.push_back(token);
    g.rules.drawn(token);
    ++counters.generated;
    if (g.streamed)
      drawn_.push_back({g.sequence,
                        token,
                        static_cast<int32_t>(version_->version),
                        pass_->logprob(g.draw),
                        {g.alternatives.end() - g.sample.alternatives, g.alternatives.end()},
                        {g.alternative_logprobs.end() - g.sample.alternatives, g.alternative_logprobs.end()}});
    if (std::find(g.stop_tokens.begin(), g.stop_tokens.end(), token) != g.stop_tokens.end()) {
      finish(i, StopReason::kStop);
    } else if ((g.stop_string = g.stops.push(token)) >= 0) {
      finish(i, StopReason::kStop);
    } else if (static_cast<int32_t>(g.tokens.size()) >= g.max_new_tokens) {
      finish(i, StopReason::kLength);
    } else if (static_cast<int64_t>(s.ids.size()) >= options_.max_sequence_tokens) {
      finish(i, StopReason::kContext);
    }
  }
  counters.pages_used = cache_.pages() - cache_.available();
  counters.pages_kept = cache_.kept();
}

void Scheduler::finish(size_t index, StopReason reason) {
  std::unique_ptr<Generation> g = std::move(active_[index]);
  active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(index));  // keeps the order of arrival
  g->reason = reason;
  Sequence& s = sequences_[static_cast<size_t>(g->sequence)];
  s.active = nullptr;
  s.used = step_;
  if (!s.broken) {
    gather_experts(*g, s);
    if (!s.pure && options_.on_update == CacheUpdate::kDropped) drop_pages(s);
    enter_pages(s, s.length, true);
  }
  ++counters.finished;
  done_.push_back(std::move(g));
}

void Scheduler::fail(size_t index, std::exception_ptr error) {
  Generation& g = *active_[index];
  g.error = error;
  sequences_[static_cast<size_t>(g.sequence)].broken = true;
  finish(index, StopReason::kAborted);
}

void Scheduler::announce_results() {
  if (done_.empty() && drawn_.empty()) return;
  {
    std::lock_guard lock(mutex_);
    for (auto& g : done_) finished_.push_back(std::move(g));
    told_.insert(told_.end(), drawn_.begin(), drawn_.end());
  }
  done_.clear();
  drawn_.clear();
  announce_();
}

}  // namespace sinkflex
