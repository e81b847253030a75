// One packed batch through the model: forward (log-probabilities and entropies of the tokens), and the backward of the
// last kept forward into float32 gradient buffers. Written once over backend.h.
//
// Memory: everything lies in one arena that only grows. A kept forward holds, for each layer and token, the two
// residual inputs (2h), the rotated q, k, v and the attention output (2HD + 2KD), and what the experts save (dense:
// gate and up, 2I; head norms: q and k before them, HD + KD); normalised inputs are computed again in the backward.
// With checkpointing a kept forward holds a layer's input only (h a token), and the backward runs each layer forward
// again: the same operators on the same numbers, so the same bits. A forward that is not kept uses one layer's buffers
// for all.
#ifndef SINKFLEX_MODEL_TRAINING_PASS_H
#define SINKFLEX_MODEL_TRAINING_PASS_H

#include <cstdint>
#include <vector>

#include "adapted_linear.h"
#include "parameters.h"
#include "rotary_tables.h"

namespace sinkflex {

struct PackedBatch {
  std::vector<int32_t> ids;         // [n]
  std::vector<int32_t> cu_seqlens;  // [segments + 1], from 0 to n
  std::vector<uint8_t> mask;        // [n] or empty: 1 where the log-probability of the token is asked for
  std::vector<int32_t> experts;     // [layers, n, top_k] or empty: routing replay; -1 first: the router chooses
};

enum class Keep { kNothing, kEverything, kLayerInputs };

// What a pass takes, in bytes: the arena and the rotary tables; the scratch of the operators without the logits; the
// block of logits.
struct PassMemory {
  int64_t activations = 0, workspace = 0, logits = 0;
};

// Gradients at the offsets of Parameters. When the head is tied its gradient has a buffer of its own, added at the end:
// otherwise the order of additions into the shared tensor, and with it the last bits, would depend on how a batch is
// split.
struct Gradients {
  Weights views;
  sfx_tensor head;  // == views.head unless tied
};

class TrainingPass {
 public:
  TrainingPass(const sfx_backend* backend, sfx_stream* stream, const Config& config, int32_t threads);

  // logprobs, entropy: [n]; entry t belongs to token t given the tokens before it in its segment; 0 for a segment's
  // first token and where the mask is 0. `weights` must stay valid until the backward of a kept forward.
  // last_hidden: null, or [segments, hidden], each segment's last token after the final norm; 0 for an empty segment.
  void forward(const PackedBatch& batch, const Weights& weights, float temperature, Keep keep, float* logprobs,
               float* entropy, float* last_hidden = nullptr);

  // dlogprobs, dentropy: [n], dentropy may be null. Gives up the kept forward.
  void backward(const float* dlogprobs, const float* dentropy, double drouter_aux_loss, Gradients* gradients);

  // The load-balancing loss of the last forward, as transformers has it: E sum_e f_e P_e over the tokens of all layers
  // together, f_e the share of tokens that chose expert e (they sum to top_k), P_e the mean of the router's softmax
  // over all experts. f carries no gradient. 0 in a dense model; top_k where the load is even.
  double router_aux_loss() const { return router_aux_loss_; }

  bool kept() const { return kept_; }
  void drop() { kept_ = false; }
  int64_t tokens() const { return n_; }
  int64_t activation_bytes() const { return arena_.bytes() + tables_.block.bytes(); }
  int64_t workspace_bytes() const { return backend_->workspace_peak(stream_); }
  int64_t logits_bytes() const { return logits_bytes_; }

  // What a pass over segments of these lengths will take, of which `rows` tokens are asked for; allocates nothing.
  static PassMemory measure(const sfx_backend* backend, const Config& config, const std::vector<int64_t>& lengths,
                            int64_t rows, Keep keep, int32_t threads);

 private:
  struct Layer {
    float *x_in, *rstd_in, *q, *k, *v, *attention, *lse, *x_mid, *rstd_mid, *expert_weight;
    int32_t* expert_index;
    void* experts;
    float *gate, *up;                        // dense
    float *q_raw, *k_raw, *rstd_q, *rstd_k;  // before the head norms
  };
  void plan(int64_t n, Keep keep);
  void layout(Arena& arena, int64_t n, Keep keep);
  int64_t table_positions(int64_t longest) const { return (longest + 1023) / 1024 * 1024; }
  sfx_pass_shape shape(int64_t n, int64_t segments, int64_t tiles, int64_t rows, Keep keep, int32_t threads) const;
  void ensure_tables(int64_t positions);
  // Without x_out: only what the backward needs.
  void layer_forward(int64_t l, Layer& a, float* x_out);
  void layer_backward(int64_t l, Layer& a, LayerWeights* d);
  // The part of a layer after attention: reads normed_, adds into `out` (or, null, stops before).
  void mlp_forward(int64_t l, Layer& a, sfx_tensor* out);
  void balance_router();
  // dx_ is the gradient of its output; fills dnormed_ with that of its input.
  void mlp_backward(const LayerWeights& w, Layer& a, LayerWeights* d);
  sfx_attention_mask mask(int64_t l) const;

  const sfx_backend* backend_;
  sfx_stream* stream_;
  Config config_;
  int32_t threads_;
  AdapterScratch adapters_;
  AdaptedLinear linear_;
  Arena arena_;
  RotaryTables tables_;
  int64_t table_positions_ = 0;

  Keep keep_ = Keep::kNothing;
  bool kept_ = false;
  int64_t logits_bytes_ = 0;
  int64_t n_ = 0, segments_ = 0, planned_n_ = 0;
  Keep planned_keep_ = Keep::kNothing;
  float temperature_ = 1;
  const Weights* weights_ = nullptr;
  std::vector<int32_t> experts_;  // PackedBatch::experts of the forward under way, for its backward too
  std::vector<Layer> layers_;
  std::vector<int32_t> ids_, target_, cu_;  // of the forward under way or kept, on the host
  int32_t* position_ = nullptr;
  float *x_final_ = nullptr, *rstd_final_ = nullptr, *normed_ = nullptr, *router_logits_ = nullptr;
  float *row_logprob_ = nullptr, *row_entropy_ = nullptr, *row_lse_ = nullptr;
  float *dx_ = nullptr, *dnormed_ = nullptr, *dq_ = nullptr, *dk_ = nullptr, *dv_ = nullptr, *dattention_ = nullptr;
  float *act_ = nullptr, *dact_ = nullptr, *dgate_ = nullptr, *dup_ = nullptr;
  double* balance_ = nullptr;  // [2E], memory of the backend, see backend.h; of the forward under way
  bool balancing_ = false;     // not while a layer runs forward again
  double router_aux_loss_ = 0;
  float* load_ = nullptr;     // [E], memory of the backend: f
  float balance_factor_ = 0;  // dloss/dP of an expert with load 1, for one token
  float *drouter_ = nullptr, *dexpert_weight_ = nullptr, *row_dlogprob_ = nullptr, *row_dentropy_ = nullptr;
};

}  // namespace sinkflex
#endif
