// A stream of the CPU backend: a thread team and a scratch arena. Compiled once (dispatch/team.cpp), so plain functions
// only.
#ifndef SINKFLEX_OPS_TEAM_H
#define SINKFLEX_OPS_TEAM_H

#include "../backend.h"

namespace sfx {

using Task = void (*)(void* context, int64_t index, int32_t thread);

int32_t team_size(const sfx_stream*);
// Runs task 0 .. count-1 over the team and returns when all are done. Which thread takes which task is open: a task may
// not depend on it.
void team_run(sfx_stream*, int64_t count, Task, void* context);

// Scratch that lives until the matching arena_leave. Grows once, then is reused; poisoned with NaN under SFX_POISON or
// a sanitizer.
int64_t arena_enter(sfx_stream*);
void arena_leave(sfx_stream*, int64_t mark);
void* arena_take(sfx_stream*, int64_t bytes);
bool arena_reserve(sfx_stream*, int64_t bytes);  // false: no memory
int64_t arena_peak(const sfx_stream*);           // bytes that were allocated at the worst moment

// Sets round to nearest, subnormals kept, no traps, whatever the host process has chosen; returns the state to restore.
uint64_t float_state_enter();
void float_state_leave(uint64_t);

int32_t fail(int32_t status, const char* message);
const char* last_error();
void* allocate(int64_t bytes);
void release(void*);
sfx_stream* stream_create(int32_t threads);
void stream_destroy(sfx_stream*);

// The scalar part of sampling (dispatch/pick.cpp): plain float64, so the same on every instruction set.
// The first i with sum(weight[0..i]) > fraction * sum(weight), and how much of that threshold is left for entry i.
int64_t pick_interval(const float* weight, int64_t count, double fraction, double* left);
// The first i with sum(weight[0..i]) > threshold, else the last with a weight.
int64_t pick_threshold(const float* weight, int64_t count, double threshold);
// Draws under min-p, top-k and top-p, in this order. logits are scaled, weight[i] = exp(logits[i] - maximum); `order`
// holds [vocabulary].
int32_t pick_restricted(const float* logits, const float* weight, int64_t vocabulary, const sfx_sample_options&,
                        int32_t* order);
// The `count` largest, in descending order, ties to the lower id, at the beginning of `order`, which holds
// [vocabulary].
void pick_largest(const float* logits, int64_t vocabulary, int64_t count, int32_t* order);

}  // namespace sfx
#endif
