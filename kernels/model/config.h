// The shape of a model as the passes need it, and the rotary tables. kernels/model-config.ts reads and
// validates config.json; numbers arrive here checked.
#ifndef SINKFLEX_MODEL_CONFIG_H
#define SINKFLEX_MODEL_CONFIG_H

#include <cstdint>
#include <vector>

namespace sinkflex {

enum class RopeKind { plain, yarn, llama3 };

struct RopeOptions {
  double theta = 10000;
  RopeKind kind = RopeKind::plain;
  double factor = 1, beta_fast = 32, beta_slow = 1, original_positions = 4096;
  double attention_factor = 1;                   // multiplies cosine and sine
  bool truncate = true;                          // floor and ceil of the correction range
  double low_frequency = 1, high_frequency = 4;  // llama3: turns within the original context
};

struct Config {
  int64_t vocab = 0, hidden = 0, intermediate = 0, layers = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  int64_t experts = 0, top_k = 0;  // 0: a dense SwiGLU layer instead of a router and experts
  float eps = 1e-5f, swiglu_limit = 7.0f;
  bool tied = false;
  bool qkv_bias = true, o_bias = true, mlp_bias = false;
  bool sinks = true;            // one learned logit a query head
  bool qk_norm = false;         // RMSNorm of each query and key head before the rotary embedding
  std::vector<int64_t> window;  // for each layer; < 0: full. Hugging Face's sliding_window W is W - 1 here
  int64_t prefix = 0;           // positions of every sequence that windows always show
  RopeOptions rope;
  int64_t lora_rank = 0;  // 0: no adapters
  float lora_scale = 1;   // alpha / rank

  int64_t query_width() const { return heads * head_dim; }
  int64_t kv_width() const { return kv_heads * head_dim; }
  bool dense() const { return experts == 0; }
};

// Inverse frequencies [D/2] of the half-split rotary embedding; YaRN and llama3 blend interpolated and original
// frequencies.
std::vector<double> inverse_frequencies(const RopeOptions& options, int64_t head_dim);

// cosine and sine [positions, D/2], from double precision, with the attention factor applied. Fills rows [from, to).
void fill_rotary_tables(const RopeOptions& options, int64_t head_dim, int64_t from, int64_t to, float* cosine,
                        float* sine);

}  // namespace sinkflex
#endif
