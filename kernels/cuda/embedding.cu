// x[r] = table[ids[r]];   dtable[ids[r]] += dx[r] in ascending r. The backward sorts the rows by id on the host: a
// block owns the rows of one id, so that equal ids never race.
#include <algorithm>
#include <numeric>

#include "intrinsics.cuh"
#include "operators.h"
#include "rows.cuh"

namespace sfx::cuda {

namespace {

constexpr int kThreads = 128;

// The rows of one id: order[begin] .. order[end - 1].
struct Run {
  int32_t id, begin, end;
};

__global__ void __launch_bounds__(kThreads)
    embedding_backward_kernel(const float* dx, int64_t stride, const Run* runs, const int32_t* order, int64_t width,
                              float* table, int64_t table_stride) {
  const Run run = runs[blockIdx.x];
  float* const to = table + (int64_t)run.id * table_stride;
  for (int64_t j = threadIdx.x; j < width; j += kThreads) {
    float sum = to[j];
    for (int i = run.begin; i < run.end; i++) sum += dx[(int64_t)order[i] * stride + j];
    to[j] = sum;
  }
}

// The ids where the host can read them, each below `rows`.
int32_t checked_ids(sfx_stream* stream, const int32_t* ids, int64_t n, int64_t rows, std::vector<int32_t>* host) {
  host->resize((size_t)n);
  SFX_TRY(copy(stream, host->data(), ids, n * (int64_t)sizeof(int32_t)));
  for (int32_t id : *host) SFX_REQUIRE(id >= 0 && id < rows, "embedding: an id lies outside the vocabulary");
  return SFX_OK;
}

}  // namespace

int32_t embedding_forward(sfx_stream* stream, const sfx_tensor* table, const int32_t* ids, sfx_tensor* x) {
  SFX_REQUIRE_F32(x);
  SFX_REQUIRE(table->dtype == SFX_F32 || table->dtype == SFX_BF16, "embedding: weights must be float32 or bf16");
  const int64_t n = x->shape[0], h = table->shape[1];
  SFX_REQUIRE(unit_last(table) && x->stride[0] == h && unit_last(x), "embedding: rows must be contiguous");
  std::vector<int32_t> host;
  SFX_TRY(checked_ids(stream, ids, n, table->shape[0], &host));
  Scratch scratch(stream);
  const int32_t* const index = scratch.input(ids, n);
  SFX_TRY(scratch.status());
  if (table->dtype == SFX_BF16)
    return gather_rows(stream, static_cast<const Bf16*>(table->data), table->stride[0], index, 1, n, h, floats(x));
  return gather_rows(stream, floats(table), table->stride[0], index, 1, n, h, floats(x));
}

int32_t embedding_backward(sfx_stream* stream, const sfx_tensor* dx, const int32_t* ids, sfx_tensor* dtable) {
  SFX_REQUIRE_F32(dx, dtable);
  SFX_REQUIRE(unit_last(dx) && unit_last(dtable), "embedding: rows must be contiguous");
  const int64_t n = dx->shape[0], h = dtable->shape[1];
  std::vector<int32_t> host, order((size_t)n);
  SFX_TRY(checked_ids(stream, ids, n, dtable->shape[0], &host));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return host[(size_t)a] < host[(size_t)b]; });
  std::vector<Run> runs;
  for (int32_t i = 0; i < (int32_t)n; i++) {
    const int32_t id = host[(size_t)order[(size_t)i]];
    if (runs.empty() || runs.back().id != id) runs.push_back({id, i, i});
    runs.back().end = i + 1;
  }
  Scratch scratch(stream);
  const Run* const there = scratch.input(runs);
  const int32_t* const rows = scratch.input(order);
  SFX_TRY(scratch.status());
  return SFX_LAUNCH(stream, embedding_backward_kernel, grid((int64_t)runs.size()), kThreads, 0, floats(dx),
                    dx->stride[0], there, rows, h, floats(dtable), dtable->stride[0]);
}

}  // namespace sfx::cuda
