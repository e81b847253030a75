// Sorting (token, choice) pairs by expert and adding their results up, both in a fixed order and without atomics.
#include "moe.cuh"
#include "reduce.cuh"

namespace sfx::cuda {

namespace {

constexpr int kThreads = 256, kMostChoices = 16;

__global__ void __launch_bounds__(kThreads) count_kernel(const int32_t* index, int64_t pairs, int32_t* counts) {
  int count = 0;
  for (int64_t i = threadIdx.x; i < pairs; i += kThreads) count += index[i] == (int32_t)blockIdx.x;
  count = block_sum(count, reinterpret_cast<int*>(shared_memory()));
  if (threadIdx.x == 0) counts[blockIdx.x] = count;
}

// A block an expert: walks all pairs and keeps its own in their order.
__global__ void __launch_bounds__(kThreads)
    place_kernel(const int32_t* index, int64_t pairs, const int32_t* counts, int32_t experts, int32_t* first,
                 int32_t* order, int32_t* place) {
  int* const each = reinterpret_cast<int*>(shared_memory());  // [warps]
  const int expert = blockIdx.x, lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
  int begin = 0;
  for (int e = 0; e < expert; e++) begin += counts[e];
  if (threadIdx.x == 0) {
    first[expert] = begin;
    if (expert == experts - 1) first[experts] = begin + counts[expert];
  }
  for (int64_t from = 0; from < pairs; from += kThreads) {
    const int64_t i = from + threadIdx.x;
    const bool mine = i < pairs && index[i] == expert;
    const unsigned votes = __ballot_sync(kWholeWarp, mine);
    if (lane == 0) each[warp] = __popc(votes);
    __syncthreads();
    int before = __popc(votes & ((1u << lane) - 1u)), all = 0;
    for (int w = 0; w < kThreads / kWarpSize; w++) before += w < warp ? each[w] : 0, all += each[w];
    if (mine) order[begin + before] = (int32_t)i, place[i] = begin + before;
    begin += all;
    __syncthreads();
  }
}

__global__ void __launch_bounds__(kThreads)
    slot_kernel(const int32_t* index, const int32_t* place, int64_t n, int32_t top_k, int32_t experts, int32_t* slot) {
  const int64_t t = (int64_t)blockIdx.x * kThreads + threadIdx.x;
  if (t >= n) return;
  int32_t* const mine = slot + t * top_k;
  int count = 0;
  for (int j = 0; j < top_k; j++) {
    const int32_t e = index[t * top_k + j];
    if (e < 0 || e >= experts) continue;
    const int32_t p = place[t * top_k + j];
    int at = count++;
    for (; at > 0 && mine[at - 1] > p; at--) mine[at] = mine[at - 1];
    mine[at] = p;
  }
  for (; count < top_k; count++) mine[count] = -1;
}

__global__ void __launch_bounds__(kThreads)
    combine_kernel(const float* rows, const float* weight, const int32_t* order, const int32_t* slot, int64_t n,
                   int32_t top_k, int64_t width, float* to, int64_t stride) {
  const int64_t i = (int64_t)blockIdx.x * kThreads + threadIdx.x;
  if (i >= n * width) return;
  const int64_t t = i / width, j = i % width;
  float sum = to[t * stride + j];
  for (int c = 0; c < top_k; c++) {
    const int64_t p = slot[t * top_k + c];
    if (p >= 0) sum = fmaf(weight ? weight[order[p]] : 1.0f, rows[p * width + j], sum);
  }
  to[t * stride + j] = sum;
}

}  // namespace

int32_t sort_pairs(Scratch& scratch, const int32_t* index, int64_t n, int32_t top_k, int64_t experts,
                   SortedPairs* sorted) {
  SFX_REQUIRE(top_k >= 1 && top_k <= kMostChoices && n * top_k < INT32_MAX, "moe: top_k must be in 1..16");
  const int64_t pairs = n * top_k;
  *sorted = {pairs, scratch.take<int32_t>(experts + 1), scratch.take<int32_t>(pairs), scratch.take<int32_t>(pairs)};
  int32_t *const counts = scratch.take<int32_t>(experts), *const place = scratch.take<int32_t>(pairs);
  SFX_TRY(scratch.status());
  sfx_stream* const stream = scratch.stream();
  SFX_TRY(fill_zero(stream, sorted->order, pairs * (int64_t)sizeof(int32_t)));
  SFX_TRY(SFX_LAUNCH(stream, count_kernel, grid(experts), kThreads, kWarpSize * sizeof(int), index, pairs, counts));
  SFX_TRY(SFX_LAUNCH(stream, place_kernel, grid(experts), kThreads, kWarpSize * sizeof(int), index, pairs, counts,
                     (int32_t)experts, sorted->first, sorted->order, place));
  return SFX_LAUNCH(stream, slot_kernel, grid(pieces(n, kThreads)), kThreads, 0, index, place, n, top_k,
                    (int32_t)experts, sorted->slot);
}

int32_t combine_pairs(sfx_stream* stream, const SortedPairs& sorted, const float* rows, const float* weight, int64_t n,
                      int32_t top_k, sfx_tensor* to) {
  const int64_t width = to->shape[1];
  return SFX_LAUNCH(stream, combine_kernel, grid(pieces(n * width, kThreads)), kThreads, 0, rows, weight, sorted.order,
                    sorted.slot, n, top_k, width, floats(to), to->stride[0]);
}

}  // namespace sfx::cuda
