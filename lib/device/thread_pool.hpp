// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Threads that wait for short pieces of work: they spin for some tens of microseconds, so that the
/// next op of a layer finds them awake, then sleep, so that a rank waiting for others leaves its
/// cores to them.

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

namespace pecia::device {

class ThreadPool {
 public:
  /// The caller of run is one of `num_threads`; the others are started here. `cpus`: a hardware
  /// thread for each, by the system's number, that it then stays on, the caller's thread too; or
  /// none. SystemError where one is not there for this process.
  explicit ThreadPool(int num_threads, const std::vector<int>& cpus = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  /// body(thread) on every thread, thread 0 being the caller; returns when all have returned. The
  /// caller calls `waiting` again and again while only others still work. Neither may throw. Not
  /// reentrant.
  void run(const std::function<void(int thread)>& body, const std::function<void()>& waiting);

 private:
  void work(int thread);

  std::atomic<uint32_t> round_{0};  ///< counts calls of run; changes when there is work
  std::atomic<int> busy_{0};        ///< workers that have not finished the round
  std::atomic<bool> ending_{false};
  const std::function<void(int)>* body_ = nullptr;
  std::vector<std::thread> workers_;
};

}  // namespace pecia::device
