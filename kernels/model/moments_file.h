// The optimiser's state on disk: a safetensors file of the block of moments as it lies in memory, and the step count.
// The header is written and checked by kernels/optimizer-state.ts; here only bytes move. A file appears under its name
// only when it is whole and on the disk.
#ifndef SINKFLEX_MODEL_MOMENTS_FILE_H
#define SINKFLEX_MODEL_MOMENTS_FILE_H

#include <cstdint>
#include <string>
#include <vector>

#include "trainer.h"

namespace sinkflex {

void write_moments(const std::string& path, const std::string& header, const uint8_t* block, int64_t bytes,
                   int64_t step);

void read_moments(const std::string& path, const std::vector<MomentPiece>& pieces, uint8_t* block, int64_t bytes);

}  // namespace sinkflex
#endif
