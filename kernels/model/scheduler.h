// Continuous batching: one native thread advances every generating sequence of an engine by one step at a time. A step
// takes the sequences that decode (one row each) and those that still read input (a chunk of rows each) through the
// model in a single pass, and draws a token for every row that is at the end of its input. The numeric contract of the
// operators makes the result independent of the company.
//
// A sequence is the list of its tokens, and pages of the key/value cache for those already read; the token drawn last
// is read first in the next turn. Pages are shared by what they hold (page_cache.h), so that what another sequence has
// read under the same weights is not read again. When pages run out, sequences between turns lose theirs first, then
// those that arrived last; they read their tokens again later, and draw what they would have drawn. Requests enter
// through a locked queue; those finished in a step are announced by one call.
#ifndef SINKFLEX_MODEL_SCHEDULER_H
#define SINKFLEX_MODEL_SCHEDULER_H

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "../memory/versioned_segment.h"
#include "device_weights.h"
#include "logit_rules.h"
#include "paged_pass.h"
#include "stop_strings.h"

namespace sinkflex {

enum class StopReason : int32_t { kStop = 0, kLength = 1, kContext = 2, kAborted = 3 };

// One turn of one sequence, from the request to its result.
struct Generation {
  int32_t sequence = 0;        // cache slot
  std::vector<int32_t> input;  // appended to the cache first
  int32_t max_new_tokens = 0;
  std::vector<int32_t> stop_tokens;
  sfx_sample_options sample{};  // position, edits and where alternatives go are set for each draw
  LogitRules rules;
  StopStrings stops;
  uint64_t ticket = 0;    // the caller's
  bool streamed = false;  // every token is announced when it is drawn

  std::vector<int32_t> tokens, versions;
  std::vector<float> logprobs;
  std::vector<int32_t> alternatives;  // sample.alternatives a token
  std::vector<float> alternative_logprobs;
  std::vector<uint16_t> experts;  // [tokens read in the turn, layers, top_k], where they are recorded
  int32_t stop_string = -1;       // which one ended it
  uint32_t lineage = 0;           // of the first token
  int64_t cached = 0;             // tokens of the input that were found in the cache
  StopReason reason = StopReason::kAborted;
  std::exception_ptr error;

 private:
  friend class Scheduler;
  int64_t draw = -1;    // draw index within the step under way
  int64_t begun = 0;    // tokens of the sequence that earlier turns have read, or would have
  int64_t known = 0;    // tokens that were in the cache once: finding them again does not count as `cached`
  int64_t waited = -1;  // the length at which it waited for a page that another computes
};

// One token of a streamed generation.
struct Drawn {
  int32_t sequence, token, version;
  float logprob;
  std::vector<int32_t> alternatives;
  std::vector<float> alternative_logprobs;
};

// What becomes of keys and values of older weights when new ones are taken. Kept: everything goes on over them.
// Dropped: a turn under way goes on over them, nothing else does. Recomputed: all tokens are read again before the next
// is drawn. In no case are they shared with sequences that begin later.
enum class CacheUpdate : int32_t { kKept = 0, kRecomputed = 1, kDropped = 2 };

struct SchedulerOptions {
  int32_t threads = 1, max_sequences = 64, max_sequence_tokens = 1024;
  int64_t step_rows = 320;     // of one step, decoding and reading together
  int64_t cache_pages = 1024;  // at least those of one sequence
  bool share_prefixes = true;
  bool record_experts = false;
  CacheUpdate on_update = CacheUpdate::kKept;
};

struct GenerationCounters {
  std::atomic<int64_t> steps{0}, rows{0}, generated{0}, finished{0}, pass_ns{0}, step_ns{0}, largest_step{0},
      versions_seen{0};
  std::atomic<int64_t> cache_bytes{0}, activation_bytes{0};
  // Tokens that turns asked to be read, and those of them that were found in the cache; sequences that lost their pages
  // while they generated; pages that sequences refer to, and pages that are only kept.
  std::atomic<int64_t> prefix_queries{0}, prefix_hits{0}, preemptions{0}, pages_used{0}, pages_kept{0};
};

class Scheduler {
 public:
  using Finished = std::vector<std::unique_ptr<Generation>>;

  // `announce` is called on the scheduler's thread after a step in which something finished or a streamed token was
  // drawn: once a step, for the whole batch. What it is about is fetched with take_results.
  Scheduler(const sfx_backend* backend, const Config& config, std::shared_ptr<const Parameters> parameters,
            std::shared_ptr<VersionedSegment> segment, const SchedulerOptions& options, std::function<void()> announce);
  ~Scheduler();  // stops; what is under way ends as aborted without being announced

  void submit(std::unique_ptr<Generation> generation);  // one a sequence at a time
  void reset(int32_t sequence);                         // empties the cache slot; nothing may be generating in it
  void abort(int32_t sequence);                         // what generates in it ends as kAborted
  void freeze(bool frozen) { frozen_ = frozen; }        // keep the pinned version instead of taking newer ones
  void stop();                                          // joins the thread; idempotent
  // Both at once: the tokens of what has finished are among `drawn`, or were before. In the order of drawing.
  void take_results(std::vector<Drawn>* drawn, Finished* finished);
  GenerationCounters counters;

 private:
  struct Sequence {
    std::vector<int32_t> ids;  // all its tokens
    int64_t length = 0;        // of them in the cache
    std::vector<int32_t> pages;
    PageCache::Node node = PageCache::kRoot;  // of its full pages
    bool pure = true;                         // what it holds was computed with the version under way
    bool broken = false;                      // a step failed: the cache holds nobody knows what
    uint64_t used = 0;                        // step of its last turn
    Generation* active = nullptr;
  };
  struct Command {
    enum Kind { kSubmit, kReset, kAbort } kind;
    int32_t sequence;
    std::unique_ptr<Generation> generation;
  };
  void run();
  void drain();
  void begin(std::unique_ptr<Generation> generation);
  void step();
  void take_version();
  void collect();
  // scheduler_rows.cpp
  void schedule();
  int64_t schedule_rows(Generation& g, size_t index, int64_t most);  // answers how many it has added
  bool attach(Generation& g, size_t index);  // what the cache holds of its tokens; false: wait for the next step
  bool admit(const Sequence& s);
  int32_t allocate_page(size_t index);  // for the index-th active one; -1: none
  bool release_idle();
  void enter_pages(Sequence& s, int64_t from, bool end);
  void drop_pages(Sequence& s);
  void gather_experts(Generation& g, const Sequence& s);
  void finish(size_t active_index, StopReason reason);
  void fail(size_t active_index, std::exception_ptr error);
  void announce_results();

  const sfx_backend* backend_;
  Config config_;
  std::shared_ptr<const Parameters> parameters_;
  std::shared_ptr<VersionedSegment> segment_;
  SchedulerOptions options_;
  std::function<void()> announce_;

  // The scheduler's thread only.
  sfx_stream* stream_ = nullptr;
  std::unique_ptr<PagedPass> pass_;
  std::optional<VersionedSegment::Reader> reader_;
  std::optional<Version> version_;
  std::optional<DeviceWeights> weights_;
  PageCache cache_;
  std::optional<Version> cached_;  // what cache_ holds was computed with
  uint64_t step_ = 0;
  bool full_ = false;  // in this step a sequence found no room to begin
  std::vector<Sequence> sequences_;
  std::vector<std::unique_ptr<Generation>> active_, done_;
  std::vector<Command> taken_;
  std::vector<Drawn> drawn_;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Command> commands_;  // guarded by mutex_
  Finished finished_;              // guarded by mutex_
  std::vector<Drawn> told_;        // guarded by mutex_
  bool sleeping_ = false;          // guarded by mutex_
  std::atomic<bool> stop_{false}, frozen_{false}, has_commands_{false};
  std::thread thread_;
};

}  // namespace sinkflex
#endif
