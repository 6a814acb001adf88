// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Where work is enqueued. On the CPU work is done before the call returns, by the stream's
/// threads, and `poll` is called between tiles so that transfers progress beside it; on a GPU it is
/// a CUDA stream, which a Device makes.

#include <functional>
#include <memory>

#include "lib/device/thread_pool.hpp"

namespace pecia::device {

class Stream {
 public:
  /// A stream of the CPU; `cpus` as ThreadPool has them.
  explicit Stream(int num_threads = 1, const std::vector<int>& cpus = {})
      : num_threads_(num_threads), pool_(std::make_unique<ThreadPool>(num_threads, cpus)) {}
  virtual ~Stream() = default;
  Stream(Stream&&) = default;
  Stream& operator=(Stream&&) = default;

  int num_threads() const { return num_threads_; }
  ThreadPool& pool() const { return *pool_; }

  /// Blocks the host until all that was enqueued is done: at once on the CPU. Throws what a kernel
  /// met.
  virtual void synchronize() {}

  /// Work enqueued from begin_step to end_step may be held back and enqueued together, where a
  /// device does that faster: a GPU launches it as graphs (graph_stream.hpp). What needs the work
  /// itself, as an event, a transfer or a host that waits, finds it enqueued, and what follows is
  /// held back again: so the work between two of those is the most that goes together.
  virtual void begin_step() {}
  virtual void end_step() {}
  /// In place of end_step, after an error: what is still held back is forgotten.
  virtual void drop_step() {}

  /// Called by the thread that enqueued the work, every few tens of microseconds while a long op
  /// computes, and while the host waits for a GPU's stream. Must be cheap; the communicator makes
  /// its transfers progress here, and throws where one is lost.
  void set_poll(std::function<void()> poll) { poll_ = std::move(poll); }
  void poll() const {
    if (poll_) poll_();
  }

 private:
  int num_threads_;
  std::unique_ptr<ThreadPool> pool_;
  std::function<void()> poll_;
};

}  // namespace pecia::device
