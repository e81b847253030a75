// The 8-bit code of optimiser moments: a float is a code times the largest magnitude of its block of 256. The values of
// the codes are spread over seven decades, twice as many in each decade as in the one below it ("dynamic" quantisation
// of 8-bit optimisers, arXiv 2110.02861): of 127 positive ones for signed moments, 2^i in decade i; of 254 for squares,
// 2^(i+1); and 0 and 1. Made once in the portable part, so that every instruction set has the same tables.
#ifndef SINKFLEX_OPS_MOMENT_CODES_H
#define SINKFLEX_OPS_MOMENT_CODES_H

#include <stdint.h>

namespace sfx {

constexpr int64_t kMomentBlock = 256;

struct MomentCodes {
  float value[256];      // by code
  float middle[256];     // by rank: from here on the next rank is nearer; infinity for the last
  uint8_t start[16257];  // by the upper half of a float's bits, up to those of 1: the rank of the smallest such float
  int32_t ranks;         // magnitudes: 129 (signed; code 128 + r is minus that of r = 1..127) or 256
};

const MomentCodes& moment_codes(bool with_sign);

}  // namespace sfx
#endif
