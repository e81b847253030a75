// The engine without JavaScript, for the sanitizers: a scheduler that generates on its own thread while a trainer
// publishes new weights into the same segment, sequences that are aborted and lose their pages, and, while no weights
// change, generation and training with the same log-probabilities bit for bit.
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "error.h"
#include "memory/versioned_segment.h"
#include "model/scheduler.h"
#include "model/trainer.h"

using namespace sinkflex;
using std::chrono::milliseconds;

namespace {

int number = 0;
bool all_good = true;
void check(bool good, const std::string& what) {
  all_good &= good;
  std::printf("%s %d - %s\n", good ? "ok" : "not ok", ++number, what.c_str());
}

uint64_t state = 7;
double uniform() {
  state = state * 6364136223846793005ull + 1442695040888963407ull;
  return static_cast<double>(state >> 11) * 0x1p-53;
}

Config config(bool dense) {
  Config c;
  c.vocab = 67, c.hidden = 24, c.intermediate = 20, c.layers = 2;
  c.heads = 4, c.kv_heads = 2, c.head_dim = 8;
  c.experts = dense ? 0 : 3, c.top_k = dense ? 0 : 2;
  c.tied = dense, c.sinks = !dense, c.qk_norm = dense, c.o_bias = !dense;
  c.window = {9, -1};
  return c;
}

std::vector<TensorSpec> tensors(const Config& c, int64_t* bytes) {
  std::vector<TensorSpec> all;
  *bytes = 0;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape, bool present = true) {
    if (!present) return;
    TensorSpec t{name, std::move(shape), *bytes, true};
    *bytes += (t.count() * 4 + 63) / 64 * 64;
    all.push_back(std::move(t));
  };
  const int64_t Q = c.query_width(), K = c.kv_width(), h = c.hidden, I = c.intermediate, E = c.experts;
  const bool moe = !c.dense();
  add("model.embed_tokens.weight", {c.vocab, h});
  add("model.norm.weight", {h});
  add("lm_head.weight", {c.vocab, h}, !c.tied);
  for (int64_t l = 0; l < c.layers; ++l) {
    const std::string p = "model.layers." + std::to_string(l) + ".", a = p + "self_attn.", m = p + "mlp.";
    for (const auto& [name, out] : std::map<std::string, int64_t>{{"q", Q}, {"k", K}, {"v", K}}) {
      add(a + name + "_proj.weight", {out, h});
      add(a + name + "_proj.bias", {out}, c.qkv_bias);
    }
    add(a + "o_proj.weight", {h, Q});
    add(a + "o_proj.bias", {h}, c.o_bias);
    add(a + "sinks", {c.heads}, c.sinks);
    add(a + "q_norm.weight", {c.head_dim}, c.qk_norm);
    add(a + "k_norm.weight", {c.head_dim}, c.qk_norm);
    add(p + "input_layernorm.weight", {h});
    add(p + "post_attention_layernorm.weight", {h});
    add(m + "router.weight", {E, h}, moe);
    add(m + "router.bias", {E}, moe);
    add(m + "experts.gate_up_proj", {E, h, 2 * I}, moe);
    add(m + "experts.gate_up_proj_bias", {E, 2 * I}, moe);
    add(m + "experts.down_proj", {E, I, h}, moe);
    add(m + "experts.down_proj_bias", {E, h}, moe);
    add(m + "gate_proj.weight", {I, h}, !moe);
    add(m + "up_proj.weight", {I, h}, !moe);
    add(m + "down_proj.weight", {h, I}, !moe);
  }
  return all;
}

struct Bench {
  std::mutex mutex;
  std::condition_variable told;
  int64_t announced = 0;
};

std::unique_ptr<Generation> generation(int32_t slot, int64_t prompt, int32_t draws) {
  auto g = std::make_unique<Generation>();
  g->sequence = slot, g->max_new_tokens = draws, g->ticket = static_cast<uint64_t>(slot), g->streamed = slot % 2 == 0;
  g->sample = {};
  g->sample.temperature = 1, g->sample.top_p = 1;
  g->sample.key[1] = static_cast<uint32_t>(slot);
  for (int64_t i = 0; i < prompt; ++i) g->input.push_back(static_cast<int32_t>((i * 7 + slot / 2) % 67));
  return g;
}

void run(bool dense, const char* isa) {
  const sfx_backend* backend = sfx_cpu_backend(isa);
  if (!backend) return;
  const std::string label = std::string(dense ? "dense" : "experts") + " on " + backend->name;
  const Config c = config(dense);
  int64_t bytes = 0;
  auto specs = tensors(c, &bytes);
  auto parameters = std::make_shared<const Parameters>(c, specs, 64, bytes);
  auto segment = VersionedSegment::create({static_cast<uint64_t>(64 + bytes), 3, 5, 8});
  {
    auto writing = segment->begin_write({milliseconds(5000)});
    std::memset(writing.data(), 0, static_cast<size_t>(64 + bytes));
    for (const TensorSpec& t : specs) {
      float* w = reinterpret_cast<float*>(writing.data() + 64 + t.offset);
      const bool norm = t.name.find("norm") != std::string::npos;
      for (int64_t i = 0; i < t.count(); ++i) w[i] = static_cast<float>(norm ? 1 : 0.6 * (uniform() - 0.5));
    }
    writing.publish(0, 1);
  }
  Bench bench;
  SchedulerOptions options;
  options.threads = 2, options.max_sequences = 8, options.max_sequence_tokens = 200, options.step_rows = 40;
  options.cache_pages = 10;  // fewer than eight sequences need: some lose theirs
  options.record_experts = !dense;
  Scheduler scheduler(backend, c, parameters, segment, options, [&] {
    const std::lock_guard<std::mutex> lock(bench.mutex);
    ++bench.announced;
    bench.told.notify_one();
  });
  Trainer trainer(backend, c, parameters, segment, 2);
  // Collects finished generations until there are `count`.
  const auto collect = [&](size_t count) {
    Scheduler::Finished all;
    size_t streamed = 0;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    for (int64_t seen = 0; all.size() < count;) {
      {
        std::unique_lock<std::mutex> lock(bench.mutex);
        if (!bench.told.wait_until(lock, deadline, [&] { return bench.announced > seen; })) break;
        seen = bench.announced;
      }
      std::vector<Drawn> drawn;
      Scheduler::Finished finished;
      scheduler.take_results(&drawn, &finished);
      streamed += drawn.size();
      for (auto& g : finished) all.push_back(std::move(g));
    }
    size_t expected = 0;
    for (const auto& g : all) expected += g->streamed ? g->tokens.size() : 0;
    check(all.size() == count, label + ": all generations end");
    check(streamed == expected, label + ": every streamed token was told once");
    return all;
  };

  // One version: generation's numbers are training's.
  for (int32_t slot = 0; slot < 8; ++slot) scheduler.submit(generation(slot, 20 + 13 * slot, 16));
  auto finished = collect(8);
  bool equal = true;
  PackedBatch batch;
  batch.cu_seqlens.push_back(0);
  for (const auto& g : finished) {
    if (g->error) check(false, label + ": a generation failed");
    batch.ids.insert(batch.ids.end(), g->input.begin(), g->input.end());
    batch.ids.insert(batch.ids.end(), g->tokens.begin(), g->tokens.end());
    batch.cu_seqlens.push_back(static_cast<int32_t>(batch.ids.size()));
  }
  const size_t n = batch.ids.size();
  std::vector<float> logprobs(n), entropy(n), slope(n, -0.01f);
  trainer.forward(batch, 1, Keep::kEverything, logprobs.data(), entropy.data());
  for (size_t i = 0; i < finished.size(); ++i) {
    const Generation& g = *finished[i];
    const float* read = logprobs.data() + batch.cu_seqlens[i] + static_cast<int64_t>(g.input.size());
    equal = equal && std::memcmp(read, g.logprobs.data(), 4 * g.logprobs.size()) == 0;
  }
  check(equal, label + ": the same log-probabilities");

  // Weights change under generations; some are aborted.
  for (int32_t slot = 0; slot < 8; ++slot) scheduler.reset(slot), scheduler.submit(generation(slot, 30, 60));
  bool finite = true;
  for (uint32_t version = 2; version < 8; ++version) {
    trainer.forward(batch, 1, Keep::kEverything, logprobs.data(), entropy.data());
    trainer.backward(slope.data(), nullptr, static_cast<int64_t>(n));
    StepOptions step;
    step.lr = 1e-3, step.max_grad_norm = 1, step.version = version;
    finite = finite && std::isfinite(trainer.step(step, nullptr));
    if (version == 4) scheduler.abort(3), scheduler.abort(6);
  }
  check(finite, label + ": steps of the optimiser");
  collect(8);
  scheduler.submit(generation(0, 5, 190));
  scheduler.stop();  // under way
}

}  // namespace

int main() {
  std::printf("TAP version 14\n");
  try {
    run(false, nullptr);
    run(true, nullptr);
    run(false, "portable");
  } catch (const Error& error) {
    check(false, error.code + ": " + error.what());
  }
  std::printf("1..%d\n", number);
  return all_good ? 0 : 1;
}
