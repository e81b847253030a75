// The operators of one instruction set, as backend.h describes them, and what they share.
#ifndef SINKFLEX_OPS_OPERATORS_H
#define SINKFLEX_OPS_OPERATORS_H

#include "../backend.h"
#include "isa.h"

namespace SFX_NS {

int64_t workspace_bytes(const sfx_pass_shape*);
int64_t logits_bytes(const sfx_pass_shape*);
int32_t embedding_forward(sfx_stream*, const sfx_tensor* table, const int32_t* ids, sfx_tensor* x);
int32_t embedding_backward(sfx_stream*, const sfx_tensor* dx, const int32_t* ids, sfx_tensor* dtable);
int32_t rms_norm_forward(sfx_stream*, const sfx_tensor* x, const sfx_tensor* w, float eps, sfx_tensor* y, float* rstd);
int32_t rms_norm_backward(sfx_stream*, const sfx_tensor* dy, const sfx_tensor* x, const sfx_tensor* w,
                          const float* rstd, sfx_tensor* dx, sfx_tensor* dw);
int32_t linear_forward(sfx_stream*, const sfx_tensor* x, const sfx_tensor* w, const sfx_tensor* bias,
                       int32_t accumulate, sfx_tensor* y);
int32_t linear_backward_input(sfx_stream*, const sfx_tensor* dy, const sfx_tensor* w, int32_t accumulate,
                              sfx_tensor* dx);
int32_t linear_backward_weight(sfx_stream*, const sfx_tensor* dy, const sfx_tensor* x, sfx_tensor* dw,
                               sfx_tensor* dbias);
int32_t rope(sfx_stream*, sfx_tensor* x, const int32_t* position, const sfx_tensor* cosine, const sfx_tensor* sine,
             int32_t inverse);
int32_t attention_forward(sfx_stream*, const sfx_tensor* q, const sfx_tensor* k, const sfx_tensor* v, const float* sink,
                          const int32_t* cu_seqlens, int64_t segments, const sfx_attention_mask*, sfx_tensor* out,
                          float* lse);
int32_t attention_backward(sfx_stream*, const sfx_tensor* dout, const sfx_tensor* q, const sfx_tensor* k,
                           const sfx_tensor* v, const float* sink, const sfx_tensor* out, const float* lse,
                           const int32_t* cu_seqlens, int64_t segments, const sfx_attention_mask*, sfx_tensor* dq,
                           sfx_tensor* dk, sfx_tensor* dv, float* dsink);
int32_t kv_write(sfx_stream*, const sfx_tensor* k, const sfx_tensor* v, const sfx_paged*);
int32_t attention_paged(sfx_stream*, const sfx_tensor* q, const float* sink, const sfx_paged*,
                        const sfx_attention_mask*, sfx_tensor* out);
int32_t router_forward(sfx_stream*, const sfx_tensor* logits, int32_t top_k, int32_t* index, float* weight);
int32_t router_replay(sfx_stream*, const sfx_tensor* logits, int32_t top_k, int32_t* index, float* weight);
int32_t router_backward(sfx_stream*, const float* dweight, const int32_t* index, const float* weight, int32_t top_k,
                        sfx_tensor* dlogits);
int32_t router_balance(sfx_stream*, const sfx_tensor* logits, const int32_t* index, int32_t top_k, double* sums);
int32_t router_balance_backward(sfx_stream*, const sfx_tensor* logits, const float* load, float factor,
                                sfx_tensor* dlogits);
int64_t moe_saved_bytes(int64_t n, int64_t h, int64_t I, int64_t E, int32_t top_k);
int32_t moe_forward(sfx_stream*, const sfx_tensor* x, const int32_t* index, const float* weight, int32_t top_k,
                    const sfx_tensor* gate_up, const sfx_tensor* gate_up_bias, const sfx_tensor* down,
                    const sfx_tensor* down_bias, float limit, sfx_tensor* y, void* saved);
int32_t moe_backward(sfx_stream*, const sfx_tensor* dy, const sfx_tensor* x, const int32_t* index, const float* weight,
                     int32_t top_k, const sfx_tensor* gate_up, const sfx_tensor* gate_up_bias, const sfx_tensor* down,
                     const sfx_tensor* down_bias, float limit, const void* saved, sfx_tensor* dx, float* dweight,
                     sfx_tensor* dgate_up, sfx_tensor* dgate_up_bias, sfx_tensor* ddown, sfx_tensor* ddown_bias);
int32_t moe_adapted_forward(sfx_stream*, const sfx_tensor* x, const int32_t* index, const float* weight, int32_t top_k,
                            const sfx_tensor* gate_up, const sfx_tensor* gate_up_bias, const sfx_tensor* down,
                            const sfx_tensor* down_bias, float limit, sfx_tensor* y, void* saved,
                            const sfx_moe_adapters*);
int32_t moe_adapted_backward(sfx_stream*, const sfx_tensor* dy, const sfx_tensor* x, const int32_t* index,
                             const float* weight, int32_t top_k, const sfx_tensor* gate_up,
                             const sfx_tensor* gate_up_bias, const sfx_tensor* down, const sfx_tensor* down_bias,
                             float limit, const void* saved, sfx_tensor* dx, float* dweight, sfx_tensor* dgate_up,
                             sfx_tensor* dgate_up_bias, sfx_tensor* ddown, sfx_tensor* ddown_bias,
                             const sfx_moe_adapters*);
int32_t swiglu_forward(sfx_stream*, const sfx_tensor* gate, const sfx_tensor* up, sfx_tensor* act);
int32_t swiglu_backward(sfx_stream*, const sfx_tensor* dact, const sfx_tensor* gate, const sfx_tensor* up,
                        sfx_tensor* dgate, sfx_tensor* dup);
int32_t linear_logprob_forward(sfx_stream*, const sfx_tensor* hidden, const sfx_tensor* w, const int32_t* target,
                               float temperature, float* logprob, float* entropy, float* lse);
int32_t linear_logprob_backward(sfx_stream*, const sfx_tensor* hidden, const sfx_tensor* w, const int32_t* target,
                                float temperature, const float* lse, const float* entropy, const float* dlogprob,
                                const float* dentropy, sfx_tensor* dhidden, sfx_tensor* dw);
int32_t linear_sample(sfx_stream*, const sfx_tensor* hidden, const sfx_tensor* w, const sfx_sample_options* options,
                      int32_t* token, float* logprob);
int32_t sum_squares(sfx_stream*, const float* g, int64_t count, double* sum);
int32_t adamw(sfx_stream*, const float* p_in, const float* g, float* m, float* v, int64_t count,
              const sfx_adamw_options*, float* p_out);
int32_t adamw_stored(sfx_stream*, const void* p_in, const float* g, int64_t count, const sfx_adamw_options*,
                     const sfx_adamw_storage*, void* p_out);
int32_t scale(sfx_stream*, float* x, int64_t count, float factor);
int32_t add_arrays(sfx_stream*, const float* from, int64_t count, float* to);
double fma_work(int64_t steps);

void add_column_sums(sfx_stream*, const float* x, int64_t row, int64_t rows, int64_t columns, float* sum);

}  // namespace SFX_NS
#endif
