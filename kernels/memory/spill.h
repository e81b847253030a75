// Memory to a file and back, with a checksum that tells a damaged file from a whole one. It guards against accidents,
// not against people.
#ifndef SINKFLEX_MEMORY_SPILL_H
#define SINKFLEX_MEMORY_SPILL_H

#include <cstdint>

namespace sinkflex {

// Both from the file's start; they answer the checksum of the bytes. SINKFLEX_OBJECT_STORE_FULL when the disk is;
// SINKFLEX_OS_FAILED otherwise, also when the file is shorter.
uint64_t write_out(int fd, const uint8_t* data, uint64_t bytes);
uint64_t read_in(int fd, uint8_t* data, uint64_t bytes);

}  // namespace sinkflex

#endif
