// The parameters of a model inside one slot (a safetensors image): which tensor lies where, and views of them for the
// passes. Gradients are float32 whatever the parameters are, at offsets of their own.
#ifndef SINKFLEX_MODEL_PARAMETERS_H
#define SINKFLEX_MODEL_PARAMETERS_H

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config.h"
#include "tensors.h"

namespace sinkflex {

struct TensorSpec {
  std::string name;  // Hugging Face's
  std::vector<int64_t> shape;
  int64_t offset = 0;  // bytes from the start of the data section; 64-byte aligned where sizes allow (tensor-layout.ts)
  bool decay = false;  // weight decay applies: not to norms, biases and sinks
  sfx_dtype dtype = SFX_F32;  // or SFX_BF16, or SFX_MXFP4: experts, stored [E, out, in]
  int64_t gradient = -1;      // bytes from the start of the gradients; -1: as `offset`
  int64_t count() const {
    int64_t n = 1;
    for (int64_t s : shape) n *= s;
    return n;
  }
  int64_t bytes() const { return dtype == SFX_MXFP4 ? count() / 32 * 17 : count() * (dtype == SFX_BF16 ? 2 : 4); }
};

// LoRA: a [rank, in], b [out, rank]; of experts a [E rank, in], b [out, rank E], see sfx_moe_adapters. No data: none.
struct Adapter {
  sfx_tensor a, b;
};

struct LayerWeights {
  sfx_tensor input_norm, q, q_bias, k, k_bias, v, v_bias, o, o_bias, sinks, q_norm, k_norm;
  sfx_tensor post_norm, router, router_bias, gate_up, gate_up_bias, down, down_bias;
  sfx_tensor gate, gate_bias, up, up_bias;  // of a dense layer, with down [h, I]
  Adapter q_lora, k_lora, v_lora, o_lora, gate_lora, up_lora, down_lora;
  Adapter gate_up_lora;  // of experts, with down_lora
};

// The adapters of a layer's experts for the backend; `d`: their gradients, or null.
sfx_moe_adapters expert_adapters(const Config& c, const LayerWeights& w, const LayerWeights* d);

// Views over one base address. A tensor that the model lacks has data == nullptr.
struct Weights {
  sfx_tensor embed, norm, head;
  std::vector<LayerWeights> layers;
};

inline const sfx_tensor* optional(const sfx_tensor& t) { return t.data ? &t : nullptr; }
inline sfx_tensor* optional(sfx_tensor& t) { return t.data ? &t : nullptr; }

class Parameters {
 public:
  // data_start: bytes before the data section of a slot; data_bytes: the section's length.
  Parameters(const Config& config, std::vector<TensorSpec> tensors, int64_t data_start, int64_t data_bytes);

  // Adapters over a frozen base: `tensors` are the adapters' alone, and slots hold nothing else. `base_data` is the
  // data section of the base's image, which must stay where it is.
  Parameters(const Config& config, std::vector<TensorSpec> tensors, int64_t data_start, int64_t data_bytes,
             std::shared_ptr<const Parameters> base, const void* base_data);

  bool adapted() const { return base_ != nullptr; }
  const std::vector<TensorSpec>& tensors() const { return tensors_; }
  int64_t data_start() const { return data_start_; }
  int64_t data_bytes() const { return data_bytes_; }
  int64_t gradient_bytes() const { return gradient_bytes_; }
  int64_t head_tensor() const { return head_; }  // the embedding when tied

  // Points `weights` at the tensors whose data section starts at `data`. Allocates only the first time.
  void bind(const void* data, Weights* weights) const;
  // The same for gradients: tensors of a frozen base have none.
  void bind_gradients(const void* data, Weights* weights) const;

 private:
  // Where a member of LayerWeights lies in the table; -1: the model lacks it.
  struct Entry {
    sfx_tensor LayerWeights::* member;
    int index;
  };
  struct AdapterEntry {
    Adapter LayerWeights::* member;
    int a, b;  // -1: the layer has none
  };
  void check_bounds();
  int find(const std::string& name, std::vector<int64_t> shape);
  int find_optional(const std::string& name, std::vector<int64_t> shape);
  void bind_own(const void* data, Weights* weights, bool gradients) const;
  void bind_adapters(const void* data, Weights* weights, bool gradients) const;
  sfx_tensor at(const void* data, int index, bool gradient) const;

  std::vector<TensorSpec> tensors_;
  int64_t data_start_, data_bytes_, gradient_bytes_ = 0;
  int embed_ = -1, norm_ = -1, head_ = -1;
  std::vector<std::vector<Entry>> layers_;
  std::shared_ptr<const Parameters> base_;
  const void* base_data_ = nullptr;
  std::vector<std::vector<AdapterEntry>> adapters_;
};

}  // namespace sinkflex
#endif
