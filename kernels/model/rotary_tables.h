// The rotary tables of a pass in memory of the backend: cosine and sine, [positions, D/2] each, in one block.
#ifndef SINKFLEX_MODEL_ROTARY_TABLES_H
#define SINKFLEX_MODEL_ROTARY_TABLES_H

#include <vector>

#include "config.h"
#include "tensors.h"

namespace sinkflex {

inline int64_t rotary_table_bytes(const Config& c, int64_t positions) {
  return positions * c.head_dim * static_cast<int64_t>(sizeof(float));
}

struct RotaryTables {
  RotaryTables() = default;
  RotaryTables(const sfx_backend* backend, sfx_stream* stream, const Config& c, int64_t positions)
      : block(backend, rotary_table_bytes(c, positions)) {
    const int64_t half = c.head_dim / 2, count = positions * half;
    std::vector<float> both(static_cast<size_t>(2 * count));
    fill_rotary_tables(c.rope, c.head_dim, 0, positions, both.data(), both.data() + count);
    upload(backend, stream, block.data(), both.data(), block.bytes());
    cosine = view(block.floats(), {positions, half});
    sine = view(block.floats() + count, {positions, half});
  }

  Block block;
  sfx_tensor cosine{}, sine{};
};

}  // namespace sinkflex
#endif
