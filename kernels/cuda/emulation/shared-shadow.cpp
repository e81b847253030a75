// What is known of each pair of bytes of the block's shared memory: who wrote it and who read it since which barrier,
// and whether a cp.async is on its way there. An access is a race if another thread's access of the same pair, one of
// them writing, is not ordered before it by a __syncthreads (any threads) or a __syncwarp (threads of one warp). The
// order in which fibers happen to run plays no part, so a missing barrier is found on every schedule.
#include "machine.h"

namespace emulation {

namespace {

constexpr uint16_t kAtomic = 0xffff;
enum Readers : uint8_t { kNone, kOneThread, kOneWarp, kManyWarps };

struct Cell {
  uint32_t serial;  // the block that all of this is about
  uint32_t write_barriers, write_syncs, read_barriers, read_syncs;
  uint16_t writer, reader;
  bool written, in_flight;
  Readers readers;
};
Cell cells[(kSharedMost + 4096) / 2];

uint32_t syncs_of(int thread) { return machine.warps[(size_t)(thread / kWarp)].syncs; }

bool before(int other, uint32_t barriers, uint32_t syncs, int thread) {
  if (other == thread || barriers < machine.barriers) return true;
  return other != kAtomic && other / kWarp == thread / kWarp && syncs < syncs_of(thread);
}
bool reads_before(const Cell& c, int thread) {
  if (c.readers == kNone || c.read_barriers < machine.barriers) return true;
  if (c.readers == kOneThread) return before(c.reader, c.read_barriers, c.read_syncs, thread);
  return c.readers == kOneWarp && c.reader / kWarp == thread / kWarp && c.read_syncs < syncs_of(thread);
}

void note_read(Cell& c, int thread) {
  if (c.readers == kNone || c.read_barriers < machine.barriers) {
    c.readers = kOneThread, c.reader = (uint16_t)thread;
  } else if (c.readers == kOneThread && c.reader != thread) {
    c.readers = c.reader / kWarp == thread / kWarp ? kOneWarp : kManyWarps;
  } else if (c.readers == kOneWarp && c.reader / kWarp != thread / kWarp) {
    c.readers = kManyWarps;
  }
  c.read_barriers = machine.barriers, c.read_syncs = syncs_of(thread);
}

std::string offset_of(const void* at) {
  return "shared memory at byte " + std::to_string((const unsigned char*)at - machine.shared);
}
std::string thread_name(int thread) { return thread == kAtomic ? "an atomic" : "thread " + std::to_string(thread); }

bool in_bounds(const void* at, size_t bytes, const void* code) {
  const size_t offset = (size_t)((const unsigned char*)at - machine.shared);
  if (offset + bytes <= machine.shared_bytes) return true;
  report("out of bounds: " + offset_of(at) + ", " + std::to_string(bytes) + " bytes, of " +
             std::to_string(machine.shared_bytes),
         code);
  return false;
}

}  // namespace

void shadow_access(const void* at, size_t bytes, bool write, bool atomic, int thread, const void* code) {
  if (!in_bounds(at, bytes, code)) return abandon();
  const size_t offset = (size_t)((const unsigned char*)at - machine.shared);
  for (size_t i = offset / 2; i <= (offset + bytes - 1) / 2; i++) {
    Cell& c = cells[i];
    if (c.serial != machine.serial) c = {machine.serial, 0, 0, 0, 0, 0, 0, false, false, kNone};
    if (c.in_flight) {
      report("race: " + std::string(write ? "writes " : "reads ") + offset_of(machine.shared + 2 * i) +
                 " while the cp.async of " + thread_name(c.writer) + " is not waited for",
             code);
      return;
    }
    const bool ordered_write =
        !c.written || (atomic && c.writer == kAtomic) || before(c.writer, c.write_barriers, c.write_syncs, thread);
    if (!ordered_write) {
      report("race: " + std::string(write ? "writes " : "reads ") + offset_of(machine.shared + 2 * i) + " that " +
                 thread_name(c.writer) + " wrote, no barrier between",
             code);
      return;
    }
    if (!write) {
      if (!c.written) {
        report("uninitialised: reads " + offset_of(machine.shared + 2 * i) + ", which nobody wrote", code);
        return;
      }
      note_read(c, thread);
      continue;
    }
    if (!reads_before(c, thread)) {
      report("race: writes " + offset_of(machine.shared + 2 * i) + " that " + thread_name(c.reader) +
                 (c.readers == kOneThread ? "" : " and others") + " read, no barrier between",
             code);
      return;
    }
    c.written = true, c.writer = atomic ? kAtomic : (uint16_t)thread;
    c.write_barriers = machine.barriers, c.write_syncs = syncs_of(thread);
  }
}

void shadow_in_flight(const void* at, size_t bytes, int thread, const void* code) {
  shadow_access(at, bytes, true, false, thread, code);
  const size_t offset = (size_t)((const unsigned char*)at - machine.shared);
  for (size_t i = offset / 2; i < (offset + bytes) / 2; i++) cells[i].in_flight = true;
}
// The copy is there: for its own thread at once, for others after the next barrier.
void shadow_deliver(const void* at, size_t bytes, int thread) {
  const size_t offset = (size_t)((const unsigned char*)at - machine.shared);
  for (size_t i = offset / 2; i < (offset + bytes) / 2; i++) {
    Cell& c = cells[i];
    c.in_flight = false, c.written = true, c.writer = (uint16_t)thread;
    c.write_barriers = machine.barriers, c.write_syncs = syncs_of(thread);
  }
}

}  // namespace emulation
