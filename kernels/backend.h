// The contract between the model code and a compute backend: a versioned C table of coarse operators over plain tensor
// descriptors. model/ is written once over this table; ops/ (the CPU) is its first implementation and cuda/ a shared
// library that fills the same table. Every operator is enqueued on a stream; only copies to the host and
// sfx_backend::synchronize block. Functions return 0 or a negative sfx_status; the message is read with
// sfx_backend::last_error (thread local to the caller).
//
// Conventions: row-major, sizes and strides in elements as int64; `n` tokens, `h` hidden width, `H` query heads, `K`
// key/value heads, `D` head width, `E` experts, `k` experts a token, `I` expert width, `V` vocabulary, `s` segments.
// "+=" marks operators that accumulate into their output. Gradients are float32 always.
#ifndef SINKFLEX_BACKEND_H
#define SINKFLEX_BACKEND_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SFX_BACKEND_VERSION 9

// MXFP4 (OCP microscaling): blocks of 32 values in a row that share a scale. data: every block's sixteen bytes (E2M1
// codes, the low half first), then every block's scale (a byte, E8M0).
typedef enum { SFX_F32 = 0, SFX_BF16 = 1, SFX_F16 = 2, SFX_I32 = 3, SFX_U8 = 4, SFX_MXFP4 = 5 } sfx_dtype;

typedef enum {
  SFX_OK = 0,
  SFX_BAD_ARGUMENT = -1,
  SFX_UNSUPPORTED = -2,
  SFX_OUT_OF_MEMORY = -3,
  SFX_DEVICE_ERROR = -4
} sfx_status;

// A view; never owns its memory. Unused trailing dimensions have shape 1.
typedef struct {
  void* data;
  int32_t dtype;
  int32_t rank;
  int64_t shape[4];
  int64_t stride[4];
} sfx_tensor;

typedef struct sfx_stream sfx_stream;  // on the CPU: a thread team; work on one stream runs in order

#ifdef __cplusplus
#define SFX_DEFAULT(value) = value
#else
#define SFX_DEFAULT(value)
#endif

// How the sink scales a row: O = f(lse, s) softmax(S) V, with lse = log(sum exp S) and s the sink logit of the head.
typedef enum {
  SFX_SINK_SIGMOID = 0,     // sigmoid(lse - s): the sink is one more key of score s and value 0
  SFX_SINK_GATE = 1,        // sigmoid(s): a learned gate of the head
  SFX_SINK_SATURATION = 2,  // 1 - exp(-exp(lse - s))
} sfx_sink_function;

// Variants of masks and scores; zeros and NULL leave plain attention.
typedef struct {
  const int32_t* document_start;  // [n]: segment-local position of the first key of the row's document, never falling
                                  // within a segment; keys before it are seen only below `prefix`
  const float* slopes;            // [H], ALiBi: the score falls by slope * (q - k)
  float softcap;                  // > 0: scores become softcap * tanh(score / softcap), before ALiBi
  int32_t sink_function;
  const float* dlse;  // [n,H], backward only: gradient with regard to the forward's lse
} sfx_attention_variant;

// Which keys a query sees: same segment, k <= q, and (window < 0, or q - k <= window, or k < prefix). Positions are
// segment-local.
typedef struct {
  int64_t window;  // < 0: full causal; Hugging Face's sliding_window W is window = W - 1
  int64_t prefix;  // visible prefix length, 0 = none
  float scale;     // usually 1/sqrt(D); the sink logit is not scaled
  const sfx_attention_variant* variant SFX_DEFAULT(nullptr);  // NULL: plain
} sfx_attention_mask;

// Rows of a paged pass: row r appends to sequence `sequence[r]` at position `position[r]`. Rows of one sequence are
// consecutive and ascending. `sequences`: rows of the page table. A page holds `page_tokens` tokens of one layer; keys
// are stored [K][D][page_tokens], values [K][page_tokens][D], so that scores vectorise over keys and outputs over D.
// page_table[sequence * max_pages + i] is the page with tokens [i*page_tokens, (i+1)*page_tokens). page_tokens is 16,
// 32 or 64. Lanes of a page that were never written may hold anything.
typedef struct {
  int64_t rows, sequences;
  int64_t longest;  // above every position
  const int32_t* sequence;
  const int32_t* position;
  const int32_t* page_table;
  int64_t max_pages;
  int64_t page_tokens;
  void* keys;        // base of this layer's key pages (dtype of the model)
  void* values;      // base of this layer's value pages
  int64_t kv_heads;  // K
} sfx_paged;

// Changes the logit z of a token for the draw alone: z += before; z = z > 0 ? z / factor : z * factor; z += after.
typedef struct {
  int32_t token;
  float before, factor, after;
} sfx_logit_edit;

typedef struct {
  float temperature;  // 0 = greedy
  int32_t top_k;      // <= 0: all
  float top_p;        // >= 1: all
  uint32_t key[4];    // run seed, task, sample, turn
  uint32_t position;  // position of the token being drawn
  float min_p;        // <= 0: all; else tokens with a probability of at least min_p times the largest; before top_k
  int64_t edits;      // how many
  const sfx_logit_edit* edit;  // one a token; the log-probabilities are of the logits before
  int32_t alternatives;  // the most likely tokens wanted, at most the vocabulary; descending, ties to the lower id
  int32_t* alternative;  // [alternatives]
  float* alternative_logprob;
} sfx_sample_options;

typedef struct {
  float lr, beta1, beta2, eps, weight_decay;
  float grad_scale;                          // multiplies the gradient first (clipping)
  float bias_correction1, bias_correction2;  // 1 - beta^t
} sfx_adamw_options;

// How an optimiser step stores what it changes: parameters in float32, or in bf16, rounded stochastically by bits that
// depend on (key, first + i) alone; moments in float32, or as 8-bit codes of blocks of 256 with a scale a block
// (ops/moment-codes.h).
typedef struct {
  int32_t bf16;
  uint32_t key[2];
  int64_t first;
  int32_t quantized;
  void *m, *v;               // float or uint8_t [count]
  float *m_scale, *v_scale;  // [(count + 255) / 256]
} sfx_adamw_storage;

// LoRA of the experts, in PEFT's layout: the product of expert e gains scale * (x A_e^T) B_e^T with A_e = rows
// e*rank .. of a[E*rank, in] and B_e = columns j*E + e (j < rank) of b[out, rank*E]. NULL pairs: that product has none.
typedef struct {
  int32_t rank;
  float scale;
  const float *gate_up_a, *gate_up_b, *down_a, *down_b;
  float *dgate_up_a, *dgate_up_b, *ddown_a, *ddown_b;  // backward, += ; NULL: not wanted
} sfx_moe_adapters;

// What a packed pass works on, for questions about memory. tiles: blocks of 64 positions over all segments; rows:
// tokens whose log-probability is asked for.
typedef struct {
  int64_t n, segments, tiles, rows;
  int64_t h, I, V, heads, kv_heads, head_dim, experts;
  int32_t top_k, threads;
  int32_t backward;     // 0: a forward only
  int32_t expert_rank;  // of sfx_moe_adapters; 0: none
} sfx_pass_shape;

typedef struct sfx_backend {
  int32_t version;   // SFX_BACKEND_VERSION
  const char* name;  // "cpu-avx512", ...
  // 1: tensors and float arrays lie in memory of `allocate`, which the host reaches by `copy` alone. Index arrays that
  // an operator reads (ids, position, cu_seqlens, target, sequence, page_table), options and what a draw gives may lie
  // in the host's memory everywhere, `sum` of sum_squares always does.
  int32_t device_memory;

  // Lifetime. threads <= 0 means one.
  sfx_stream* (*stream_create)(int32_t threads);
  void (*stream_destroy)(sfx_stream*);
  int32_t (*synchronize)(sfx_stream*);
  const char* (*last_error)(void);
  void* (*allocate)(int64_t bytes);  // 64-byte aligned device memory; NULL when out of memory
  void (*release)(void*);
  int32_t (*copy)(sfx_stream*, void* to, const void* from, int64_t bytes);
  int32_t (*fill_zero)(sfx_stream*, void* to, int64_t bytes);

  // Scratch of a stream: the most that its operators have held; how much a pass of a shape needs, and of that the
  // logits (they share the scratch with everything else); a reservation, so that the pass allocates nothing.
  int64_t (*workspace_peak)(const sfx_stream*);
  int64_t (*workspace_bytes)(const sfx_pass_shape*);
  int64_t (*logits_bytes)(const sfx_pass_shape*);
  int32_t (*workspace_reserve)(sfx_stream*, int64_t bytes);

  // x[r,:] = table[ids[r],:];   backward: dtable[ids[r],:] += dx[r,:] in ascending r
  int32_t (*embedding_forward)(sfx_stream*, const sfx_tensor* table, const int32_t* ids, sfx_tensor* x);
  int32_t (*embedding_backward)(sfx_stream*, const sfx_tensor* dx, const int32_t* ids, sfx_tensor* dtable);

  // y = x * rsqrt(mean(x^2) + eps) * w, rstd[n] saved;   backward: dx += ..., dw += ...
  int32_t (*rms_norm_forward)(sfx_stream*, const sfx_tensor* x, const sfx_tensor* w, float eps, sfx_tensor* y,
                              float* rstd);
  int32_t (*rms_norm_backward)(sfx_stream*, const sfx_tensor* dy, const sfx_tensor* x, const sfx_tensor* w,
                               const float* rstd, sfx_tensor* dx, sfx_tensor* dw);

  // y[n,N] = x[n,M] w^T + b (+ y when accumulate). w is described as [N,M]; its strides say which way it is stored
  // ([out,in] of Hugging Face linear layers or [in,out] of the experts). Chain over M ascending from 0 (then bias, then
  // the residual y).
  int32_t (*linear_forward)(sfx_stream*, const sfx_tensor* x, const sfx_tensor* w, const sfx_tensor* bias,
                            int32_t accumulate, sfx_tensor* y);
  // dx = dy w (+ dx when accumulate);   dw += dy^T x, db += column sums, chained over tokens in ascending order
  int32_t (*linear_backward_input)(sfx_stream*, const sfx_tensor* dy, const sfx_tensor* w, int32_t accumulate,
                                   sfx_tensor* dx);
  int32_t (*linear_backward_weight)(sfx_stream*, const sfx_tensor* dy, const sfx_tensor* x, sfx_tensor* dw,
                                    sfx_tensor* dbias);

  // In place on x[n, heads, D], half-split pairs (j, j + D/2); tables cosine/sine [positions, D/2]; inverse = 1 is the
  // backward.
  int32_t (*rope)(sfx_stream*, sfx_tensor* x, const int32_t* position, const sfx_tensor* cosine, const sfx_tensor* sine,
                  int32_t inverse);

  // Packed sink attention: q[n,H,D], k,v[n,K,D] -> out[n,H,D], lse[n,H] = log(sum exp(scores) + exp(sink)), without the
  // sink's term under another sink function than the sigmoid; sink [H] or NULL. float32 or bf16 storage.
  int32_t (*attention_forward)(sfx_stream*, const sfx_tensor* q, const sfx_tensor* k, const sfx_tensor* v,
                               const float* sink, const int32_t* cu_seqlens, int64_t segments,
                               const sfx_attention_mask*, sfx_tensor* out, float* lse);
  // dq, dk, dv are overwritten, dsink += . `lse` and `out` come from the forward.
  int32_t (*attention_backward)(sfx_stream*, const sfx_tensor* dout, const sfx_tensor* q, const sfx_tensor* k,
                                const sfx_tensor* v, const float* sink, const sfx_tensor* out, const float* lse,
                                const int32_t* cu_seqlens, int64_t segments, const sfx_attention_mask*, sfx_tensor* dq,
                                sfx_tensor* dk, sfx_tensor* dv, float* dsink);
  // Writes k,v[rows,K,D] into the pages, then attends each row q[rows,H,D] to its sequence's cache up to its own
  // position.
  int32_t (*kv_write)(sfx_stream*, const sfx_tensor* k, const sfx_tensor* v, const sfx_paged*);
  int32_t (*attention_paged)(sfx_stream*, const sfx_tensor* q, const float* sink, const sfx_paged*,
                             const sfx_attention_mask*, sfx_tensor* out);

  // logits[n,E] -> index[n,k] (descending logit; ties to the lower id), weight[n,k] = softmax over the chosen;
  // backward: dlogits[n,E] overwritten (zero for the experts not chosen)
  int32_t (*router_forward)(sfx_stream*, const sfx_tensor* logits, int32_t top_k, int32_t* index, float* weight);
  // The same where index[r,0] < 0; else the experts of row r are given, and only their weights are computed.
  int32_t (*router_replay)(sfx_stream*, const sfx_tensor* logits, int32_t top_k, int32_t* index, float* weight);
  int32_t (*router_backward)(sfx_stream*, const float* dweight, const int32_t* index, const float* weight,
                             int32_t top_k, sfx_tensor* dlogits);
  // Load balancing, float64 chains over the tokens: sums[e] += pairs (token, choice) that went to expert e;
  // sums[E + e] += softmax(logits[r])[e], over all experts. Backward, with p = softmax(logits[r]):
  // dlogits[r,e] += factor p_e (load_e - sum_j load_j p_j), the gradient of factor * sum_e load_e p_e.
  int32_t (*router_balance)(sfx_stream*, const sfx_tensor* logits, const int32_t* index, int32_t top_k, double* sums);
  int32_t (*router_balance_backward)(sfx_stream*, const sfx_tensor* logits, const float* load, float factor,
                                     sfx_tensor* dlogits);

  // Mixture of experts with the clamped SwiGLU of gpt-oss. gate_up[E,h,2I] (interleaved gate, up), down[E,I,h], both
  // float32, bf16 or, stored [E,out,in], MXFP4 (without a gradient); biases [E,2I] and [E,h]. y[n,h] +=
  // sum over the chosen experts, ascending expert id, weight * expert(x). `saved` (query moe_saved_bytes) keeps what
  // the backward needs, or NULL. y may be NULL: then only `saved` is filled.
  int64_t (*moe_saved_bytes)(int64_t n, int64_t h, int64_t I, int64_t E, int32_t top_k);
  int32_t (*moe_forward)(sfx_stream*, const sfx_tensor* x, const int32_t* index, const float* weight, int32_t top_k,
                         const sfx_tensor* gate_up, const sfx_tensor* gate_up_bias, const sfx_tensor* down,
                         const sfx_tensor* down_bias, float limit, sfx_tensor* y, void* saved);
  // dx += ..., dweight[n,k] overwritten, parameter gradients +=
  int32_t (*moe_backward)(sfx_stream*, const sfx_tensor* dy, const sfx_tensor* x, const int32_t* index,
                          const float* weight, int32_t top_k, const sfx_tensor* gate_up, const sfx_tensor* gate_up_bias,
                          const sfx_tensor* down, const sfx_tensor* down_bias, float limit, const void* saved,
                          sfx_tensor* dx, float* dweight, sfx_tensor* dgate_up, sfx_tensor* dgate_up_bias,
                          sfx_tensor* ddown, sfx_tensor* ddown_bias);

  // Both with adapters (NULL: as above). A frozen gate_up or down has no gradient: NULL.
  int32_t (*moe_adapted_forward)(sfx_stream*, const sfx_tensor* x, const int32_t* index, const float* weight,
                                 int32_t top_k, const sfx_tensor* gate_up, const sfx_tensor* gate_up_bias,
                                 const sfx_tensor* down, const sfx_tensor* down_bias, float limit, sfx_tensor* y,
                                 void* saved, const sfx_moe_adapters*);
  int32_t (*moe_adapted_backward)(sfx_stream*, const sfx_tensor* dy, const sfx_tensor* x, const int32_t* index,
                                  const float* weight, int32_t top_k, const sfx_tensor* gate_up,
                                  const sfx_tensor* gate_up_bias, const sfx_tensor* down, const sfx_tensor* down_bias,
                                  float limit, const void* saved, sfx_tensor* dx, float* dweight, sfx_tensor* dgate_up,
                                  sfx_tensor* dgate_up_bias, sfx_tensor* ddown, sfx_tensor* ddown_bias,
                                  const sfx_moe_adapters*);

  // Dense SwiGLU of llama and qwen: act[n,I] = silu(gate) * up;   backward: dgate, dup overwritten
  int32_t (*swiglu_forward)(sfx_stream*, const sfx_tensor* gate, const sfx_tensor* up, sfx_tensor* act);
  int32_t (*swiglu_backward)(sfx_stream*, const sfx_tensor* dact, const sfx_tensor* gate, const sfx_tensor* up,
                             sfx_tensor* dgate, sfx_tensor* dup);

  // Fused head: for rows with target >= 0, logprob[r] = log softmax(hidden w^T / temperature)[target], entropy[r];
  // lse[r] saved. Never holds [n, V].
  int32_t (*linear_logprob_forward)(sfx_stream*, const sfx_tensor* hidden, const sfx_tensor* w, const int32_t* target,
                                    float temperature, float* logprob, float* entropy, float* lse);
  // dhidden overwritten (zero rows where target < 0), dw += . Recomputes the logits chunk by chunk.
  int32_t (*linear_logprob_backward)(sfx_stream*, const sfx_tensor* hidden, const sfx_tensor* w, const int32_t* target,
                                     float temperature, const float* lse, const float* entropy, const float* dlogprob,
                                     const float* dentropy, sfx_tensor* dhidden, sfx_tensor* dw);
  // Draws one token a row (options[r] for row r); logprob is the raw full softmax at the temperature (at 1 for greedy),
  // bit-equal to linear_logprob_forward's.
  int32_t (*linear_sample)(sfx_stream*, const sfx_tensor* hidden, const sfx_tensor* w,
                           const sfx_sample_options* options, int32_t* token, float* logprob);
  // Full logits [n, V] (tests, export); unscaled.
  // (linear_forward serves.)

  // sum of squares in float64 over one tensor, fixed order;   p_out = AdamW(p_in, g): may alias; moments in place
  int32_t (*sum_squares)(sfx_stream*, const float* g, int64_t count, double* sum);
  int32_t (*adamw)(sfx_stream*, const float* p_in, const float* g, float* m, float* v, int64_t count,
                   const sfx_adamw_options*, float* p_out);
  int32_t (*adamw_stored)(sfx_stream*, const void* p_in, const float* g, int64_t count, const sfx_adamw_options*,
                          const sfx_adamw_storage*, void* p_out);
  // x[i] *= factor;   to[i] += from[i]
  int32_t (*scale)(sfx_stream*, float* x, int64_t count, float factor);
  int32_t (*add)(sfx_stream*, const float* from, int64_t count, float* to);

  // For measurements: `steps` turns of independent fma chains in registers on the caller; the operations done (an fma
  // is two).
  double (*fma_work)(int64_t steps);
} sfx_backend;

// The CPU backend for the best instruction set of this machine, or the one SINKFLEX_CPU names (avx512, avx2, neon,
// portable); NULL if it cannot run here.
const sfx_backend* sfx_cpu_backend(const char* isa);

// What a backend library exports under the name sfx_backend_open: its table for one device of the machine, or NULL with
// a status and a message.
typedef const sfx_backend* (*sfx_backend_open_function)(int32_t version, int32_t device, int32_t* status, char* message,
                                                        int64_t message_bytes);
// And under the name sfx_backend_probe: whether that device could be opened, without taking it or any of its memory.
// The message says what the device is, or why not.
typedef int32_t (*sfx_backend_probe_function)(int32_t version, int32_t device, char* message, int64_t message_bytes);

#ifdef __cplusplus
}
#endif
#endif
