// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A queue of work. On the CPU the stream's threads do the work before the call returns, and `poll`
/// is called between tiles so that transfers progress meanwhile. On a GPU it is a CUDA stream,
/// which a Device makes.

#include <functional>
#include <memory>

#include "lib/base/device/joint_ranks.hpp"
#include "lib/base/device/thread_pool.hpp"

namespace pecia::device {

class Stream {
 public:
  /// A stream of the CPU. `cpus` has the same meaning as for ThreadPool.
  explicit Stream(int num_threads = 1, const std::vector<int>& cpus = {})
      : num_threads_(num_threads), pool_(std::make_unique<ThreadPool>(num_threads, cpus)) {}
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  Stream(Stream&&) = default;
  Stream& operator=(Stream&&) = default;

  int num_threads() const { return num_threads_; }
  ThreadPool& pool() const { return *pool_; }

  /// Blocks the host until all enqueued work is done; on the CPU it returns at once. Throws the
  /// errors that kernels met.
  virtual void synchronize() {}

  /// Work enqueued from begin_step to end_step may be held back and enqueued together, where that
  /// is faster on the device: a GPU launches it as graphs (graph_stream.hpp). Before an event, a
  /// transfer or a host wait, the work held back is enqueued; the work after it is held back again.
  /// So at most the work between two such points goes together.
  virtual void begin_step() {}
  virtual void end_step() {}
  /// Replaces end_step after an error: work that is still held back is dropped.
  virtual void drop_step() {}

  /// Holds back a collective work of `ranks` in a step, in its order among this stream's works, until
  /// the ranks agree how to enqueue it (joint_ranks.hpp). Returns false if it is the caller's to
  /// enqueue, which is the same on every rank. Collective over `ranks`, which must live until
  /// drop_joint_graphs.
  virtual bool hold_back(JointRanks&, const JointWork&) { return false; }
  /// Launches no graph with collective works again that is there now. Call it before memory that
  /// they name is freed, and before a group of ranks ends. Launches of before run to their end.
  virtual void drop_joint_graphs() {}

  /// Sets a function that the enqueuing thread calls every few tens of microseconds while a long op
  /// computes, and while the host waits for a GPU's stream. It must be cheap. The communicator
  /// makes its transfers progress here, and throws when a transfer is lost.
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
