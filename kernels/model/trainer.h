// The training side of an engine: pins the version it computes with, accumulates gradients over kept forwards, and
// turns them into the next version of the store. Used by one native thread at a time; the engine queues calls in order.
#ifndef SINKFLEX_MODEL_TRAINER_H
#define SINKFLEX_MODEL_TRAINER_H

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "../memory/versioned_segment.h"
#include "device_weights.h"
#include "training_pass.h"

namespace sinkflex {

struct StepOptions {
  double lr = 0, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  double max_grad_norm = 0;  // <= 0: no clipping
  uint32_t lineage = 0, version = 0;
};

// Where the moments of each tensor lie in their block, in bytes; scales only where they are 8-bit codes.
struct MomentSpec {
  int64_t m = 0, v = 0, m_scale = -1, v_scale = -1;
  bool quantized() const { return m_scale >= 0; }
  bool kept() const { return m >= 0; }  // not: another trainer of a data-parallel group has them
};
struct Moments {
  std::vector<MomentSpec> tensors;  // one a tensor of the parameters
  int64_t bytes = 0;
  // Where each slot keeps them behind its image, and after them the count of steps (int64); -1: they are the trainer's
  // own memory.
  int64_t slot = -1;
  uint32_t seed = 0;  // of the stochastic rounding of bf16 parameters
};
// A piece of a file that goes into the block of moments.
struct MomentPiece {
  int64_t from, to, bytes;
};

struct TrainingCounters {
  std::atomic<int64_t> forward_passes{0}, forward_tokens{0}, forward_ns{0};
  std::atomic<int64_t> backward_passes{0}, backward_tokens{0}, backward_ns{0};
  std::atomic<int64_t> optimizer_steps{0}, optimizer_ns{0};
  // Bytes held now; the scratch at its largest.
  std::atomic<int64_t> activation_bytes{0}, workspace_bytes{0}, logits_bytes{0}, gradient_bytes{0}, optimizer_bytes{0};
};

class Trainer {
 public:
  Trainer(const sfx_backend* backend, const Config& config, std::shared_ptr<const Parameters> parameters,
          std::shared_ptr<VersionedSegment> segment, int32_t threads, Moments moments = {});
  ~Trainer();

  Version forward(const PackedBatch& batch, float temperature, Keep keep, float* logprobs, float* entropy,
                  float* last_hidden = nullptr);
  double router_aux_loss() const { return pass_.router_aux_loss(); }
  void backward(const float* dlogprobs, const float* dentropy, int64_t tokens, double drouter_aux_loss = 0);
  void zero_gradients();
  // Clips by the global norm, applies AdamW from the newest version into a fresh slot and publishes it, then clears the
  // gradients. Returns the norm before clipping. SINKFLEX_ENGINE_NOT_FINITE leaves weights and moments untouched.
  double step(const StepOptions& options, const std::atomic<bool>* stop);
  // The same for the tensors whose moments are kept, neighbours in the layout, after the gradients of all trainers were
  // added up: their new bytes go to `out`, as long as from the first to the end of the last. Publishes nothing.
  double step_shard(const StepOptions& options, uint8_t* out, int64_t bytes);

  // The accumulated gradients at the offsets of Parameters, with the two parts of a tied head added up, in the host's
  // memory. Whoever holds them may read and change them between passes; they outlive the trainer.
  std::shared_ptr<Block> gradients();

  // The next step is a first one.
  void forget_moments();
  // Moments: see moments_file.h. A load that fails changes nothing.
  void save_moments(const std::string& path, const std::string& header);
  void load_moments(const std::string& path, const std::vector<MomentPiece>& pieces, int64_t step);

  TrainingCounters counters;

 private:
  double gradient_norm(const StepOptions& o);
  const uint8_t* pin_before(const StepOptions& o);
  void update_kept(const StepOptions& o, double norm, uint8_t* moments, const uint8_t* from, uint8_t* to);
  void update(const TensorSpec& t, const MomentSpec& at, const sfx_adamw_options& options, uint8_t* moments,
              const uint8_t* from, uint8_t* to);
  bool in_slots() const { return moments_.slot >= 0; }
  int64_t steps_in(const uint8_t* slot, Version version) const;
  uint8_t* moments_in(uint8_t* new_slot, const uint8_t* old_slot);
  void count_memory();
  void ensure_gradients();
  void fold_tied_head();
  void lend_gradients();  // brings a copy that somebody holds up to date
  void take_gradients();  // and back what was changed in it
  void ensure_moments();

  const sfx_backend* backend_;
  sfx_stream* stream_ = nullptr;
  Config config_;
  std::shared_ptr<const Parameters> parameters_;
  std::shared_ptr<VersionedSegment> segment_;
  std::optional<VersionedSegment::Reader> reader_;  // claimed at the first use
  TrainingPass pass_;
  DeviceWeights weights_;
  Moments moments_;
  std::shared_ptr<Block> gradient_block_ = std::make_shared<Block>();
  std::shared_ptr<Block> lent_gradients_;  // on a device: the copy on the host that gradients() gives
  Block head_block_, moment_block_;
  Gradients gradients_;
  int64_t step_ = 0;
  std::optional<Version> forgotten_;  // the moments in the slot of this version are not to be gone on from
};

}  // namespace sinkflex
#endif
