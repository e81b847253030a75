#include "trainer.h"

#include <chrono>
#include <cmath>
#include <cstring>

#include "moments_file.h"

namespace sinkflex {

namespace {
class Stopwatch {
 public:
  explicit Stopwatch(std::atomic<int64_t>* total) : total_(total), start_(std::chrono::steady_clock::now()) {}
  ~Stopwatch() {
    const auto spent = std::chrono::steady_clock::now() - start_;
    *total_ += std::chrono::duration_cast<std::chrono::nanoseconds>(spent).count();
  }

 private:
  std::atomic<int64_t>* total_;
  std::chrono::steady_clock::time_point start_;
};
}  // namespace

Trainer::Trainer(const sfx_backend* backend, const Config& config, std::shared_ptr<const Parameters> parameters,
                 std::shared_ptr<VersionedSegment> segment, int32_t threads, Moments moments)
    : backend_(backend),
      stream_(backend->stream_create(threads)),
      config_(config),
      parameters_(std::move(parameters)),
      segment_(std::move(segment)),
      pass_(backend, stream_, config, threads),
      weights_(backend, parameters_),
      moments_(std::move(moments)) {
  if (in_slots() && backend_->device_memory)
    throw Error("SINKFLEX_BAD_ARGUMENT",
                "a store whose slots hold the moments is trained on the CPU: create it without `moments` for a device");
  if (in_slots() && moments_.slot + moments_.bytes + static_cast<int64_t>(sizeof step_) >
                        static_cast<int64_t>(segment_->slot_bytes()))
    throw Error("SINKFLEX_INTERNAL", "the moments do not fit into the slots of this store");
  if (!moments_.tensors.empty()) return;
  for (const TensorSpec& t : parameters_->tensors())
    moments_.tensors.push_back({t.gradient, parameters_->gradient_bytes() + t.gradient});
  moments_.bytes = 2 * parameters_->gradient_bytes();
}

Trainer::~Trainer() { backend_->stream_destroy(stream_); }

Version Trainer::forward(const PackedBatch& batch, float temperature, Keep keep, float* logprobs, float* entropy,
                         float* last_hidden) {
  Stopwatch watch(&counters.forward_ns);
  if (!reader_) reader_.emplace(segment_);
  pass_.drop();
  Version version;
  const uint8_t* const slot = reader_->pin(&version);
  weights_.take(stream_, slot, version);
  pass_.forward(batch, weights_.weights(), temperature, keep, logprobs, entropy, last_hidden);
  if (keep == Keep::kNothing) reader_->release();  // an idle engine holds no slot
  ++counters.forward_passes;
  counters.forward_tokens += pass_.tokens();
  count_memory();
  return version;
}

void Trainer::count_memory() {
  counters.activation_bytes = pass_.activation_bytes();
  counters.logits_bytes = pass_.logits_bytes();
  counters.workspace_bytes = std::max<int64_t>(0, pass_.workspace_bytes() - pass_.logits_bytes());
  counters.gradient_bytes = gradient_block_->bytes() + head_block_.bytes();
  counters.optimizer_bytes = moment_block_.bytes();
}

void Trainer::backward(const float* dlogprobs, const float* dentropy, int64_t tokens, double drouter_aux_loss) {
  if (!pass_.kept())
    throw Error("SINKFLEX_ENGINE_NOTHING_KEPT",
                "backward needs a forward with keep: true before it, and only one backward follows each");
  if (tokens != pass_.tokens())
    throw Error("SINKFLEX_BAD_ARGUMENT", "dLogprobs has " + std::to_string(tokens) + " entries, the kept forward had " +
                                             std::to_string(pass_.tokens()) + " tokens");
  Stopwatch watch(&counters.backward_ns);
  ensure_gradients();
  take_gradients();
  pass_.backward(dlogprobs, dentropy, drouter_aux_loss, &gradients_);
  lend_gradients();
  reader_->release();
  count_memory();
  ++counters.backward_passes;
  counters.backward_tokens += tokens;
}

void Trainer::ensure_gradients() {
  if (gradient_block_->data()) return;
  *gradient_block_ = Block(backend_, parameters_->gradient_bytes());
  parameters_->bind_gradients(gradient_block_->data(), &gradients_.views);
  gradients_.head = gradients_.views.head;
  if (config_.tied && !parameters_->adapted()) {
    head_block_ = Block(backend_, config_.vocab * config_.hidden * static_cast<int64_t>(sizeof(float)));
    gradients_.head = view(head_block_.data(), {config_.vocab, config_.hidden});
  }
  zero_gradients();
}

void Trainer::zero_gradients() {
  if (!gradient_block_->data()) return;
  check(backend_, backend_->fill_zero(stream_, gradient_block_->data(), gradient_block_->bytes()), "fill_zero");
  if (head_block_.data())
    check(backend_, backend_->fill_zero(stream_, head_block_.data(), head_block_.bytes()), "fill_zero");
  check(backend_, backend_->synchronize(stream_), "synchronize");
  lend_gradients();
}

void Trainer::fold_tied_head() {
  if (!head_block_.data()) return;
  const int64_t count = config_.vocab * config_.hidden;
  check(backend_, backend_->add(stream_, head_block_.floats(), count, static_cast<float*>(gradients_.views.embed.data)),
        "add");
  check(backend_, backend_->fill_zero(stream_, head_block_.data(), head_block_.bytes()), "fill_zero");
}

std::shared_ptr<Block> Trainer::gradients() {
  ensure_gradients();
  fold_tied_head();
  if (!backend_->device_memory) return gradient_block_;
  if (!lent_gradients_)
    lent_gradients_ = std::make_shared<Block>(sfx_cpu_backend(nullptr), parameters_->gradient_bytes());
  lend_gradients();
  return lent_gradients_;
}

void Trainer::lend_gradients() {
  if (lent_gradients_)
    download(backend_, stream_, lent_gradients_->data(), gradient_block_->data(), gradient_block_->bytes());
}

void Trainer::take_gradients() {
  if (lent_gradients_)
    upload(backend_, stream_, gradient_block_->data(), lent_gradients_->data(), gradient_block_->bytes());
  if (lent_gradients_.use_count() == 1) lent_gradients_.reset();  // nobody holds them any more
}

void Trainer::ensure_moments() {
  if (moment_block_.data() || in_slots()) return;
  moment_block_ = Block(backend_, moments_.bytes);
  check(backend_, backend_->fill_zero(stream_, moment_block_.data(), moment_block_.bytes()), "fill_zero");
  check(backend_, backend_->synchronize(stream_), "synchronize");
}

// Before clipping.
double Trainer::gradient_norm(const StepOptions& o) {
  if (!reader_) reader_.emplace(segment_);
  ensure_gradients();
  ensure_moments();
  take_gradients();
  fold_tied_head();
  pass_.drop();

  const uint8_t* gradient = static_cast<const uint8_t*>(gradient_block_->data());
  double squares = 0;
  for (const TensorSpec& t : parameters_->tensors()) {
    double sum = 0;
    check(backend_,
          backend_->sum_squares(stream_, reinterpret_cast<const float*>(gradient + t.gradient), t.count(), &sum),
          "sum_squares");
    check(backend_, backend_->synchronize(stream_), "synchronize");
    squares += sum;
  }
  const double norm = std::sqrt(squares);
  if (!std::isfinite(norm))
    throw Error("SINKFLEX_ENGINE_NOT_FINITE", "the gradient norm is not finite: the step for version " +
                                                  std::to_string(o.version) + " was not taken");
  return norm;
}

// The current slot, pinned, and its weights taken. Refused before the moments change, so that a caller may correct the
// version and step again.
const uint8_t* Trainer::pin_before(const StepOptions& o) {
  Version from;
  const uint8_t* slot = reader_->pin(&from);
  if (std::pair(o.lineage, o.version) > std::pair(from.lineage, from.version)) {
    weights_.take(stream_, slot, from);
    if (in_slots()) step_ = steps_in(slot, from);
    return slot;
  }
  reader_->release();
  throw Error("SINKFLEX_STORE_ORDER", "version " + std::to_string(o.lineage) + "." + std::to_string(o.version) +
                                          " is not greater than the current " + std::to_string(from.lineage) + "." +
                                          std::to_string(from.version));
}

// `from`, `to`: where the first tensor of the layout would be.
void Trainer::update_kept(const StepOptions& o, double norm, uint8_t* moments, const uint8_t* from, uint8_t* to) {
  sfx_adamw_options a{};
  a.lr = static_cast<float>(o.lr);
  a.beta1 = static_cast<float>(o.beta1);
  a.beta2 = static_cast<float>(o.beta2);
  a.eps = static_cast<float>(o.eps);
  a.grad_scale =
      o.max_grad_norm > 0 && norm > o.max_grad_norm ? static_cast<float>(o.max_grad_norm / (norm + 1e-6)) : 1.0f;
  a.bias_correction1 = static_cast<float>(1 - std::pow(o.beta1, static_cast<double>(step_ + 1)));
  a.bias_correction2 = static_cast<float>(1 - std::pow(o.beta2, static_cast<double>(step_ + 1)));
  for (size_t i = 0; i < moments_.tensors.size(); ++i) {
    if (!moments_.tensors[i].kept()) continue;
    const TensorSpec& t = parameters_->tensors()[i];
    a.weight_decay = t.decay ? static_cast<float>(o.weight_decay) : 0.0f;
    update(t, moments_.tensors[i], a, moments, from + t.offset, to + t.offset);
  }
  check(backend_, backend_->synchronize(stream_), "synchronize");
  ++step_;
}

double Trainer::step(const StepOptions& o, const std::atomic<bool>* stop) {
  Stopwatch watch(&counters.optimizer_ns);
  for (const MomentSpec& at : moments_.tensors)
    if (!at.kept()) throw Error("SINKFLEX_BAD_ARGUMENT", "an engine with a shard of the moments steps by shardStep");
  const double norm = gradient_norm(o);
  const int64_t start = parameters_->data_start();
  const uint8_t* old_slot = pin_before(o);
  WaitOptions wait;
  wait.stop = stop;
  VersionedSegment::Writing writing = segment_->begin_write(wait);
  uint8_t* new_slot = writing.data();
  std::memcpy(new_slot, old_slot, static_cast<size_t>(start));  // the safetensors header
  uint8_t* const moments = in_slots() ? moments_in(new_slot, old_slot) : static_cast<uint8_t*>(moment_block_.data());
  update_kept(o, norm, moments, weights_.data(), weights_.updated(new_slot));
  if (in_slots()) std::memcpy(moments + moments_.bytes, &step_, sizeof step_);
  weights_.settle(stream_, new_slot);
  writing.publish(o.lineage, o.version);
  reader_->release();
  zero_gradients();
  count_memory();
  ++counters.optimizer_steps;
  return norm;
}

double Trainer::step_shard(const StepOptions& o, uint8_t* out, int64_t bytes) {
  Stopwatch watch(&counters.optimizer_ns);
  int64_t first = -1, end = 0;
  for (size_t i = 0; i < moments_.tensors.size(); ++i) {
    if (!moments_.tensors[i].kept()) continue;
    const TensorSpec& t = parameters_->tensors()[i];
    if (first < 0) first = t.offset;
    end = t.offset + t.bytes();
  }
  if (first < 0) first = 0;  // a group of more trainers than tensors
  if (bytes != end - first)
    throw Error("SINKFLEX_BAD_ARGUMENT",
                "the shard has " + std::to_string(end - first) + " bytes, out has " + std::to_string(bytes));
  const double norm = gradient_norm(o);
  pin_before(o);
  uint8_t* const moments = static_cast<uint8_t*>(moment_block_.data());
  if (backend_->device_memory) {
    const Block shard(backend_, bytes);
    update_kept(o, norm, moments, weights_.data(), static_cast<uint8_t*>(shard.data()) - first);
    download(backend_, stream_, out, shard.data(), bytes);
  } else {
    update_kept(o, norm, moments, weights_.data(), out - first);
  }
  reader_->release();
  zero_gradients();
  count_memory();
  ++counters.optimizer_steps;
  return norm;
}

void Trainer::update(const TensorSpec& t, const MomentSpec& at, const sfx_adamw_options& options, uint8_t* moments,
                     const uint8_t* from, uint8_t* to) {
  const float* g = reinterpret_cast<const float*>(static_cast<const uint8_t*>(gradient_block_->data()) + t.gradient);
  if (t.dtype == SFX_F32 && !at.quantized()) {
    check(backend_,
          backend_->adamw(stream_, reinterpret_cast<const float*>(from), g, reinterpret_cast<float*>(moments + at.m),
                          reinterpret_cast<float*>(moments + at.v), t.count(), &options, reinterpret_cast<float*>(to)),
          "adamw");
    return;
  }
  sfx_adamw_storage s{};
  s.bf16 = t.dtype == SFX_BF16;
  s.key[0] = moments_.seed, s.key[1] = static_cast<uint32_t>(step_);
  s.first = t.gradient / static_cast<int64_t>(sizeof(float));
  s.quantized = at.quantized();
  s.m = moments + at.m, s.v = moments + at.v;
  if (at.quantized()) {
    s.m_scale = reinterpret_cast<float*>(moments + at.m_scale);
    s.v_scale = reinterpret_cast<float*>(moments + at.v_scale);
  }
  check(backend_, backend_->adamw_stored(stream_, from, g, t.count(), &options, &s, to), "adamw_stored");
}

// Steps that the moments in the slot of a version have taken; 0: they are not to be gone on from.
int64_t Trainer::steps_in(const uint8_t* slot, Version version) const {
  int64_t steps = 0;
  if (forgotten_ != version) std::memcpy(&steps, slot + moments_.slot + moments_.bytes, sizeof steps);
  return steps;
}

// The moments of the next version, as they are before its step.
uint8_t* Trainer::moments_in(uint8_t* new_slot, const uint8_t* old_slot) {
  uint8_t* const moments = new_slot + moments_.slot;
  if (step_ == 0)
    check(backend_, backend_->fill_zero(stream_, moments, moments_.bytes), "fill_zero");
  else
    check(backend_, backend_->copy(stream_, moments, old_slot + moments_.slot, moments_.bytes), "copy");
  return moments;
}

void Trainer::forget_moments() {
  forgotten_ = segment_->current();
  step_ = 0;
  if (!moment_block_.data()) return;
  check(backend_, backend_->fill_zero(stream_, moment_block_.data(), moment_block_.bytes()), "fill_zero");
  check(backend_, backend_->synchronize(stream_), "synchronize");
}

void Trainer::save_moments(const std::string& path, const std::string& header) {
  if (in_slots()) {
    VersionedSegment::Reader reader(segment_);
    Version version;
    const uint8_t* const slot = reader.pin(&version);
    const int64_t steps = steps_in(slot, version);
    const std::vector<uint8_t> zeros(static_cast<size_t>(steps == 0 ? moments_.bytes : 0));
    write_moments(path, header, steps == 0 ? zeros.data() : slot + moments_.slot, moments_.bytes, steps);
    return;
  }
  ensure_moments();
  HostCopy moments(backend_, stream_, moment_block_);
  moments.fetch();
  write_moments(path, header, moments.data(), moments_.bytes, step_);
}

void Trainer::load_moments(const std::string& path, const std::vector<MomentPiece>& pieces, int64_t step) {
  Block fresh(backend_, moments_.bytes);
  HostCopy moments(backend_, stream_, fresh);
  read_moments(path, pieces, moments.data(), moments_.bytes);
  moments.send();
  moment_block_ = std::move(fresh);
  step_ = step;
}

}  // namespace sinkflex
