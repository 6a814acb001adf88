// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/comm/call_watch.hpp"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <utility>

#include "lib/base/core/error.hpp"

namespace pecia::comm {

CallWatch::CallWatch(Clock::duration timeout, Late late)
    : timeout_(timeout), late_(std::move(late)) {
  if (timeout_ <= Clock::duration::zero()) return;
  // The new thread blocks all signals, so the main thread receives them.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

CallWatch::Call CallWatch::begin(const char* operation, int64_t number, const std::string& peers) {
  const std::lock_guard lock(mutex_);
  PECIA_CHECK(operation_ == nullptr, "a call within {} #{}", operation_, number_);
  operation_ = operation, number_ = number, peers_ = &peers;
  since_ = Clock::now();
  return Call(*this);
}

void CallWatch::end() {
  const std::lock_guard lock(mutex_);
  operation_ = nullptr;
}

void CallWatch::watch(const std::stop_token& stop) {
  const Clock::duration round = std::min<Clock::duration>(timeout_ / 4, std::chrono::seconds(1));
  std::unique_lock lock(mutex_);
  while (!stopped_.wait_for(lock, stop, round, [&] { return stop.stop_requested(); })) {
    if (stop.stop_requested()) return;
    if (operation_ == nullptr || Clock::now() - since_ < timeout_) continue;
    const std::string words = fmt::format(
        "{} #{} with {}: the call has not returned for {:.3g} s, since other ranks do not take "
        "part",
        operation_, number_, *peers_, std::chrono::duration<double>(timeout_).count());
    lock.unlock();
    return late_(words);
  }
}

}  // namespace pecia::comm
