// SPDX-License-Identifier: Apache-2.0
#include "lib/run/gather_results.hpp"

#include <algorithm>
#include <chrono>

#include "lib/base/core/error.hpp"
#include "lib/work/batch/journals.hpp"

namespace pecia::run {

GatherResults::GatherResults(const std::filesystem::path& output)
    : gatherer_(batch::journal_folder(output), output / "results.h5"),
      thread_([this](const std::stop_token& stop) { work(stop); }) {}

GatherResults::~GatherResults() = default;

void GatherResults::work(const std::stop_token& stop) {
  using Clock = std::chrono::steady_clock;
  constexpr Clock::duration shortest = std::chrono::milliseconds(100);
  constexpr Clock::duration longest = std::chrono::seconds(2);
  constexpr int times = 20;
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested() && !failure_) {
    const auto begin = Clock::now();
    lock.unlock();
    std::exception_ptr failure;
    try {
      gatherer_.gather();
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    failure_ = failure;
    wake_.wait_for(lock, stop, std::clamp(times * (Clock::now() - begin), shortest, longest),
                   [] { return false; });
  }
}

void GatherResults::check() {
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
}

void GatherResults::finish() {
  thread_.request_stop();
  thread_.join();
  check();
  const auto torn = gatherer_.finish();
  if (!torn.empty())
    fail<SystemError>("{}: its last {} bytes are no whole row although its replica has ended",
                      torn.front().path.string(), torn.front().bytes);
}

}  // namespace pecia::run
