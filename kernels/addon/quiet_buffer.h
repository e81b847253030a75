// ArrayBuffers whose memory V8 does not count when they are made or collected. V8 compares what it counts with a limit
// that grows with the heap: on a heap of 20 MB every view of 10 MB makes it mark all objects, 20 ms of processor time,
// though most views are dead a few milliseconds later. What stays is told to it afterwards.
#ifndef SINKFLEX_ADDON_QUIET_BUFFER_H
#define SINKFLEX_ADDON_QUIET_BUFFER_H

#include <napi.h>

#include <atomic>
#include <memory>

namespace sinkflex {

// Of one environment.
class QuietBuffers {
 public:
  // Shows memory that `owner` keeps; the owner is let go of, in any thread, when nobody has the buffer any more.
  Napi::ArrayBuffer make(Napi::Env env, uint8_t* data, size_t bytes, std::shared_ptr<const void> owner);
  // V8's count of external memory includes all buffers that are there, or falls short of them by `slack` bytes at most.
  // Answers that count.
  int64_t tell(Napi::Env env, int64_t slack);
  int64_t live() const { return *live_; }  // bytes that are there

 private:
  std::shared_ptr<std::atomic<int64_t>> live_ = std::make_shared<std::atomic<int64_t>>(0);  // bytes
  int64_t told_ = 0;
};

}  // namespace sinkflex

#endif
