// SPDX-License-Identifier: Apache-2.0
#include "lib/base/device/thread_pool.hpp"

#include <pthread.h>
#include <sched.h>

#include <cstring>
#include <memory>

#include "lib/base/core/error.hpp"
#include "lib/base/core/isa.hpp"

namespace pecia::device {
namespace {

void stay_on(pthread_t thread, int cpu) {
  const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(cpu + 1),
                                                             [](cpu_set_t* old) { CPU_FREE(old); });
  const size_t bytes = CPU_ALLOC_SIZE(cpu + 1);
  CPU_ZERO_S(bytes, set.get());
  CPU_SET_S(cpu, bytes, set.get());
  const int error = ::pthread_setaffinity_np(thread, bytes, set.get());
  if (error != 0)
    fail<SystemError>("a thread cannot be bound to hardware thread {}: {}; unset OMP_PROC_BIND",
                      cpu, std::strerror(error));
}

}  // namespace

ThreadPool::ThreadPool(int num_threads, const std::vector<int>& cpus) {
  PECIA_CHECK(cpus.empty() || cpus.size() == static_cast<size_t>(num_threads),
              "{} hardware threads for {} threads", cpus.size(), num_threads);
  // The loop ends at the first CPU, where the caller stays. So each CPU is known to work before a
  // thread starts.
  for (auto cpu = cpus.rbegin(); cpu != cpus.rend(); ++cpu) stay_on(::pthread_self(), *cpu);
  for (int thread = 1; thread < num_threads; ++thread) {
    std::thread& worker = workers_.emplace_back([this, thread] { work(thread); });
    if (!cpus.empty()) stay_on(worker.native_handle(), cpus[thread]);
  }
}

ThreadPool::~ThreadPool() {
  ending_ = true;
  round_.fetch_add(1);
  round_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(const std::function<void(int)>& body, const std::function<void()>& waiting) {
  body_ = &body;
  busy_ = static_cast<int>(workers_.size());
  round_.fetch_add(1);
  round_.notify_all();
  body(0);
  constexpr int spins = 1000;
  for (int tries = 0; busy_.load() > 0; ++tries) {
    waiting();
    if (tries < spins)
      pause_core();
    else
      ::sched_yield();  // a worker may want this core
  }
}

void ThreadPool::work(int thread) {
  constexpr int spins = 2000;  // some 40 µs
  for (uint32_t seen = 0;;) {
    for (int tries = 0; tries < spins && round_.load() == seen; ++tries) pause_core();
    round_.wait(seen);
    seen = round_.load();
    if (ending_) return;
    (*body_)(thread);
    busy_.fetch_sub(1);
  }
}

}  // namespace pecia::device
