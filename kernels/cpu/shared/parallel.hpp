// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The one way the CPU backend uses threads. Free threads take independent tasks in order.

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <mutex>

#include "lib/base/device/stream.hpp"

namespace pecia::kernels::cpu {

/// A thread of a parallel loop, as its task sees it.
struct Worker {
  int thread;  ///< 0 is the caller's
  const device::Stream& stream;

  /// Only the thread that enqueued the work may poll.
  void poll() const {
    if (thread == 0) stream.poll();
  }
};

/// Gives out tasks in order to the threads that are free.
class TaskQueue {
 public:
  TaskQueue(int64_t num_tasks, int) : num_tasks_(num_tasks) {}

  /// Returns the next task for a thread. There is none if it is num_tasks or more.
  int64_t take(int) { return next_.fetch_add(1); }
  bool is_task(int64_t task) const { return task < num_tasks_; }

 private:
  int64_t num_tasks_;
  std::atomic<int64_t> next_{0};
};

/// Each thread has its own share of neighbouring tasks, which is the same in every call with the
/// same number of tasks. When it has done its share, it helps with the shares of the others. So
/// what a task asks for ahead is what its thread reads next, and memory is read by the cores that
/// read it before.
class TaskShares {
 public:
  TaskShares(int64_t num_tasks, int num_threads)
      : num_threads_(num_threads), num_shares_(std::min(num_threads, most_shares)) {
    for (int i = 0; i < num_shares_; ++i) {
      shares_[i].next = num_tasks * i / num_shares_;
      shares_[i].end = num_tasks * (i + 1) / num_shares_;
    }
  }

  int64_t take(int thread) {
    const int own = static_cast<int>(int64_t{thread} * num_shares_ / num_threads_);
    for (int i = 0; i < num_shares_; ++i) {
      Share& share = shares_[(own + i) % num_shares_];
      if (share.next.load(std::memory_order_relaxed) >= share.end) continue;
      if (const int64_t task = share.next.fetch_add(1); task < share.end) return task;
    }
    return -1;
  }
  bool is_task(int64_t task) const { return task >= 0; }

 private:
  static constexpr int most_shares = 64;
  struct alignas(64) Share {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };
  int num_threads_, num_shares_;
  std::array<Share, most_shares> shares_;
};

/// Calls body(task, worker) for every task in [0, num_tasks), on stream.num_threads() threads.
/// Polls between tasks, while it waits for the last ones, and at the end. The first exception of a
/// body or poll is thrown again here, after the other tasks have run. A single task runs in the
/// calling thread.
template <typename Tasks, typename Body>
void run_tasks(const device::Stream& stream, int64_t num_tasks, const Body& body) {
  if (stream.num_threads() == 1 || num_tasks <= 1) {
    for (int64_t task = 0; task < num_tasks; ++task) {
      if (task > 0) stream.poll();
      body(task, Worker{0, stream});
    }
    return;
  }
  Tasks tasks(num_tasks, stream.num_threads());
  std::mutex mutex;
  std::exception_ptr error;
  const auto guarded = [&](const auto& action) {
    try {
      action();
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
  };
  stream.pool().run(
      [&](int thread) {
        const Worker worker{thread, stream};
        for (int64_t task; tasks.is_task(task = tasks.take(thread));)
          guarded([&] {
            body(task, worker);
            worker.poll();
          });
      },
      [&] { guarded([&] { stream.poll(); }); });
  guarded([&] { stream.poll(); });  // the others may have left the caller no task and no wait
  if (error) std::rethrow_exception(error);
}

/// Runs tasks that differ in cost. Free threads take them in order.
template <typename Body>
void for_each_task(const device::Stream& stream, int64_t num_tasks, const Body& body) {
  run_tasks<TaskQueue>(stream, num_tasks, body);
}

/// Calls body(begin, end) over [0, count) in pieces of `grain`, which cost about the same. Each
/// thread begins with a share of neighbouring pieces.
template <typename Body>
void for_each_range(const device::Stream& stream, int64_t count, int64_t grain, const Body& body) {
  run_tasks<TaskShares>(stream, (count + grain - 1) / grain, [&](int64_t task, const Worker&) {
    body(task * grain, std::min(count, (task + 1) * grain));
  });
}

/// Returns the number of rows of `row_elements` that make a task worth its hand-over, which is some
/// microseconds of elementwise work.
inline int64_t rows_per_task(int64_t row_elements) {
  return std::max<int64_t>(1, (16 << 10) / std::max<int64_t>(1, row_elements));
}

}  // namespace pecia::kernels::cpu
