// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Threads that wait for short pieces of work. They spin for some tens of microseconds, so that the
/// next op of a layer finds them awake. Then they sleep, so that a rank that waits for others
/// leaves its cores to them.

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

namespace pecia::device {

class ThreadPool {
 public:
  /// The caller of `run` is one of `num_threads` threads; the others are started here. `cpus` is
  /// empty or gives each thread, the caller's included, the system's number of a hardware thread,
  /// on which it then stays. Throws SystemError if this process may not use one of them.
  explicit ThreadPool(int num_threads, const std::vector<int>& cpus = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  /// Calls body(thread) on every thread and returns when all calls have returned. The caller is
  /// thread 0; it calls `waiting` repeatedly while only other threads still work. Neither function
  /// may throw. Not reentrant.
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
