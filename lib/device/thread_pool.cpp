#include "lib/device/thread_pool.hpp"

#include <sched.h>

namespace pecia::device {
namespace {

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

ThreadPool::ThreadPool(int num_threads) {
  for (int thread = 1; thread < num_threads; ++thread)
    workers_.emplace_back([this, thread] { work(thread); });
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
      pause();
    else
      ::sched_yield();  // a worker may want this core
  }
}

void ThreadPool::work(int thread) {
  constexpr int spins = 2000;  // some 40 µs
  for (uint32_t seen = 0;;) {
    for (int tries = 0; tries < spins && round_.load() == seen; ++tries) pause();
    round_.wait(seen);
    seen = round_.load();
    if (ending_) return;
    (*body_)(thread);
    busy_.fetch_sub(1);
  }
}

}  // namespace pecia::device
