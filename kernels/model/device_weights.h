// The weights of a version where operators read them: in the slot itself, or on a device in a copy that is made anew
// when another version is taken.
#ifndef SINKFLEX_MODEL_DEVICE_WEIGHTS_H
#define SINKFLEX_MODEL_DEVICE_WEIGHTS_H

#include <optional>

#include "../memory/versioned_segment.h"
#include "parameters.h"

namespace sinkflex {

class DeviceWeights {
 public:
  DeviceWeights(const sfx_backend* backend, std::shared_ptr<const Parameters> parameters)
      : backend_(backend), parameters_(std::move(parameters)) {}

  // Points weights() at `version`, which stands in `slot` (pinned by the caller).
  void take(sfx_stream* stream, const uint8_t* slot, Version version) {
    const uint8_t* const section = slot + parameters_->data_start();
    if (!backend_->device_memory) return bind(section);
    if (version_ != version) {
      version_.reset();
      if (!copy_.data()) copy_ = Block(backend_, parameters_->data_bytes());
      upload(backend_, stream, copy_.data(), section, parameters_->data_bytes());
      version_ = version;
    }
    bind(static_cast<const uint8_t*>(copy_.data()));
  }
  const Weights& weights() const { return weights_; }
  // The data section that weights() point into.
  const uint8_t* data() const { return bound_; }

  // Where an update of the taken version goes that `slot` is to hold, and how it comes there. A copy is then taken anew
  // from what was published.
  uint8_t* updated(uint8_t* slot) {
    if (!backend_->device_memory) return slot + parameters_->data_start();
    version_.reset();
    return static_cast<uint8_t*>(copy_.data());
  }
  void settle(sfx_stream* stream, uint8_t* slot) {
    if (backend_->device_memory)
      download(backend_, stream, slot + parameters_->data_start(), copy_.data(), parameters_->data_bytes());
  }

 private:
  void bind(const uint8_t* section) {
    if (section == bound_) return;
    parameters_->bind(section, &weights_);
    bound_ = section;
  }

  const sfx_backend* backend_;
  std::shared_ptr<const Parameters> parameters_;
  Block copy_;
  std::optional<Version> version_;  // what the copy holds
  Weights weights_;
  const uint8_t* bound_ = nullptr;
};

}  // namespace sinkflex
#endif
