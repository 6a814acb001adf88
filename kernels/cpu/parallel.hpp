#pragma once
/// The one way the CPU backend uses threads: independent tasks, taken in order by whoever is free.

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>

#include "lib/device/stream.hpp"

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

/// body(task, worker) for every task in [0, num_tasks), on stream.num_threads() threads; polls
/// between tasks, while waiting for the last ones, and at the end. The first exception of a body or
/// poll is thrown again here, after the other tasks have run. A single task runs in the calling
/// thread.
template <typename Body>
void for_each_task(const device::Stream& stream, int64_t num_tasks, const Body& body) {
  if (stream.num_threads() == 1 || num_tasks <= 1) {
    for (int64_t task = 0; task < num_tasks; ++task) {
      if (task > 0) stream.poll();
      body(task, Worker{0, stream});
    }
    return;
  }
  std::atomic<int64_t> next{0};
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
        for (int64_t task; (task = next.fetch_add(1)) < num_tasks;)
          guarded([&] {
            body(task, worker);
            worker.poll();
          });
      },
      [&] { guarded([&] { stream.poll(); }); });
  guarded([&] { stream.poll(); });  // the others may have left the caller no task and no wait
  if (error) std::rethrow_exception(error);
}

/// body(begin, end) over [0, count) in pieces of `grain`.
template <typename Body>
void for_each_range(const device::Stream& stream, int64_t count, int64_t grain, const Body& body) {
  for_each_task(stream, (count + grain - 1) / grain, [&](int64_t task, const Worker&) {
    body(task * grain, std::min(count, (task + 1) * grain));
  });
}

/// Rows of `row_elements` that make a task worth its hand-over (some microseconds of elementwise
/// work).
inline int64_t rows_per_task(int64_t row_elements) {
  return std::max<int64_t>(1, (16 << 10) / std::max<int64_t>(1, row_elements));
}

}  // namespace pecia::kernels::cpu
