// The optimiser's state on disk: a safetensors file with the sections m.*, v.* and the step count, in that order. The
// header is written and checked by kernels/optimizer-state.ts; here only bytes move. A file appears under its name only
// when it is whole and on the disk.
#ifndef SINKFLEX_MODEL_MOMENTS_FILE_H
#define SINKFLEX_MODEL_MOMENTS_FILE_H

#include <cstdint>
#include <string>
#include <vector>

#include "parameters.h"

namespace sinkflex {

void write_moments(const std::string& path, const std::string& header, const uint8_t* m, const uint8_t* v,
                   int64_t section_bytes, int64_t step);

// Offsets are from the start of the file, one a tensor of the table.
void read_moments(const std::string& path, const std::vector<int64_t>& m_offsets, const std::vector<int64_t>& v_offsets,
                  const std::vector<TensorSpec>& tensors, uint8_t* m, uint8_t* v);

}  // namespace sinkflex
#endif
