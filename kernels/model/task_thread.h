// A native thread that runs an engine's passes one after another, in the order they were posted, and announces what is
// done.
#ifndef SINKFLEX_MODEL_TASK_THREAD_H
#define SINKFLEX_MODEL_TASK_THREAD_H

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "tensors.h"

namespace sinkflex {

class TaskThread {
 public:
  struct Done {
    uint64_t ticket;
    std::exception_ptr error;
  };

  explicit TaskThread(std::function<void()> announce) : announce_(std::move(announce)), thread_([this] { run(); }) {}
  ~TaskThread() { stop(); }
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;

  void post(uint64_t ticket, std::function<void()> work) {
    {
      std::lock_guard lock(mutex_);
      queue_.push_back({ticket, std::move(work)});
      ++unfinished_;
    }
    wake_.notify_one();
  }
  void wait_idle() {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return unfinished_ == 0 || stop_; });
  }
  void take_done(std::vector<Done>* into) {
    std::lock_guard lock(mutex_);
    into->swap(done_);
  }
  // Lets the task under way end (it may watch stopping()), drops the rest, joins.
  void stop() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    idle_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  const std::atomic<bool>* stopping() const { return &stop_; }

 private:
  struct Task {
    uint64_t ticket;
    std::function<void()> work;
  };
  void run() {
    reset_float_environment();
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return stop_ || !queue_.empty(); });
      if (stop_) return;
      Task task = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      std::exception_ptr error;
      try {
        task.work();
      } catch (...) {
        error = std::current_exception();
      }
      task.work = nullptr;
      lock.lock();
      done_.push_back({task.ticket, error});
      if (--unfinished_ == 0) idle_.notify_all();
      lock.unlock();
      announce_();
      lock.lock();
    }
  }

  std::function<void()> announce_;
  std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::deque<Task> queue_;
  std::vector<Done> done_;
  int64_t unfinished_ = 0;
  std::atomic<bool> stop_{false};
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace sinkflex
#endif
