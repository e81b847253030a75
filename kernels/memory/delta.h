// One version of a slot as the change of another, without loss: bit patterns of elements are subtracted, and what has
// changed is written as gaps between positions and zigzag differences, both in Rice codes with a parameter a block.
// Where everything has changed, or there is nothing to change from, the elements stand as they are; so a delta is never
// much larger than the slot.
//   header    "SFDELTA1", u64 bytes, u32 bytes an element (2 or 4), u32 1 if it changes another version
//   table     for each piece of 1 MiB: u64 bytes of its code, u64 checksum of the piece as it is to become
//   pieces    blocks of 4096 elements: u8 how, then
//             0 same: nothing. 1 sparse: u16 changed, u8 k of gaps, u8 k of values, codes. 2 dense: u8 k, codes. 3 raw
#ifndef SINKFLEX_MEMORY_DELTA_H
#define SINKFLEX_MEMORY_DELTA_H

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sinkflex {

// `before` nullptr: the whole. `width`: bytes an element, 2 or 4; `bytes` is a multiple of it.
std::vector<uint8_t> encode_delta(const uint8_t* before, const uint8_t* now, size_t bytes, unsigned width,
                                  unsigned threads);

// Writes [bytes] to `now`. Errors: SINKFLEX_DELTA_DAMAGED (cut off, malformed, for another size, or what comes out
// is not what went in: another `before`, or damage on the way); `now` holds nothing usable then.
void apply_delta(const uint8_t* delta, size_t delta_bytes, const uint8_t* before, uint8_t* now, size_t bytes,
                 unsigned threads);

}  // namespace sinkflex

#endif
