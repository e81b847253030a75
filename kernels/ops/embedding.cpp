// x[r] = table[ids[r]];   dtable[ids[r]] += dx[r] in ascending r: threads share out columns, so equal ids never race.
#include <string.h>

#include "operation.h"
#include "operators.h"
#include "v16.h"

namespace SFX_NS {
namespace {
bool ids_in_range(const int32_t* ids, int64_t n, int64_t rows) {
  for (int64_t r = 0; r < n; r++)
    if (ids[r] < 0 || ids[r] >= rows) return false;
  return true;
}
}  // namespace

int32_t embedding_forward(sfx_stream* s, const sfx_tensor* table, const int32_t* ids, sfx_tensor* x) {
  SFX_CHECK_F32(x);
  SFX_CHECK_WEIGHT(table);
  SFX_CHECK(unit_last(table) && unit_last(x), "embedding: rows must be contiguous");
  SFX_CHECK(ids_in_range(ids, x->shape[0], table->shape[0]), "embedding: an id lies outside the vocabulary");
  const Operation op(s);
  const int64_t h = table->shape[1];
  parallel_ranges(s, x->shape[0], 1, (double)x->shape[0] * h / 16, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++) {
      float* const to = data(x) + r * x->stride[0];
      const int64_t from = ids[r] * table->stride[0];
      if (table->dtype == SFX_F32)
        memcpy(to, data(table) + from, (size_t)h * sizeof(float));
      else
        for (int64_t j = 0; j < h; j += 16)
          store_part(to + j, load_bf16_part(static_cast<const uint16_t*>(table->data) + from + j, h - j), h - j);
    }
  });
  return SFX_OK;
}

int32_t embedding_backward(sfx_stream* s, const sfx_tensor* dx, const int32_t* ids, sfx_tensor* dtable) {
  SFX_CHECK_F32(dx, dtable);
  SFX_CHECK(unit_last(dx) && unit_last(dtable), "embedding: rows must be contiguous");
  SFX_CHECK(ids_in_range(ids, dx->shape[0], dtable->shape[0]), "embedding: an id lies outside the vocabulary");
  const Operation op(s);
  parallel_ranges(s, dtable->shape[1], 16, (double)dx->shape[0] * dtable->shape[1] / 16,
                  [&](int64_t begin, int64_t end) {
                    for (int64_t r = 0; r < dx->shape[0]; r++) {
                      const float* from = data(dx) + r * dx->stride[0];
                      float* to = data(dtable) + ids[r] * dtable->stride[0];
                      for (int64_t j = begin; j < end; j += 16)
                        store_part(to + j, add(load_part(to + j, end - j), load_part(from + j, end - j)), end - j);
                    }
                  });
  return SFX_OK;
}

}  // namespace SFX_NS
