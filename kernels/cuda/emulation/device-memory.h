// Device memory of the emulated machine: one reserved range, each byte of which is free, allocated or written.
#ifndef SINKFLEX_CUDA_EMULATION_DEVICE_MEMORY_H
#define SINKFLEX_CUDA_EMULATION_DEVICE_MEMORY_H

#include <stddef.h>

namespace emulation {

// 256-byte aligned, filled with NaN; NULL when the emulated device is full.
void* device_allocate(size_t bytes);
void device_release(void*);
bool is_device(const void*);
// Between host and device or inside either. false: outside an allocation.
bool device_copy(void* to, const void* from, size_t bytes);
bool device_zero(void* to, size_t bytes);
// What a library outside the machine has written.
void device_written(const void* at, size_t bytes);
// As after device_allocate: whoever reads it before writing is reported. For scratch that is lent again.
void device_forget(void* at, size_t bytes);
// What is allocated.
size_t device_bytes_used();

}  // namespace emulation
#endif
