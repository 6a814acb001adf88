// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/watch/watch.hpp"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <utility>

#include "lib/ranks/cluster/machine.hpp"

namespace pecia::watch {
namespace {

using Seconds = std::chrono::duration<double>;

/// The time between rounds. In each round a rank shows itself and reads its ward's record. The
/// whole run makes some 160 rounds per second, which a shared file system can serve.
Seconds round_of(int ranks, Seconds silence) {
  return std::min(Seconds(0.1) * std::max(1.0, ranks / 16.0), silence / 4);
}

}  // namespace

Watch::Watch(std::function<void()> end_job, std::shared_ptr<Activity> activity)
    : end_job_(std::move(end_job)), activity_(std::move(activity)) {}

Watch::~Watch() {
  end_thread();
}

void Watch::end_thread() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
}

void Watch::begin(std::unique_ptr<WatchBoard> board, Seconds silence,
                  std::function<bool()> asked_to_stop, std::optional<int> stage) {
  end_thread();
  stage_ = stage;
  board_ = std::move(board);
  beats_ = -1, silent_rounds_ = 0;
  silence_ = silence;
  round_ = round_of(board_->size(), silence);
  asked_to_stop_ = std::move(asked_to_stop);
  ward_ = (board_->rank() + 1) % board_->size();
  // The new thread blocks all signals, so the main thread receives them.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Watch::watch(const std::stop_token& stop) {
  constexpr Seconds nap(0.1);  // launchers leave a second between SIGTERM and SIGKILL
  std::string host = cluster::host_name();
  if (stage_) host += fmt::format(", stage {}", *stage_);
  std::mutex mutex;
  std::condition_variable_any stopped;  // only the stop request notifies it
  bool asked = false;
  while (!stop.stop_requested()) {
    board_->show(record_of(*activity_, host));
    look_at_ward();
    for (Seconds slept{}; slept < round_ && !stop.stop_requested(); slept += nap) {
      std::unique_lock lock(mutex);
      stopped.wait_for(lock, stop, std::min(nap, round_), [] { return false; });
      if (!std::exchange(asked, asked_to_stop_()) && asked) break;
    }
  }
}

void Watch::look_at_ward() {
  const auto ward = board_->read(ward_);
  if (!ward) return;
  if (board_->is_dead(ward_)) {
    end_with(fmt::format("{} has died {}", name_of(ward_, *ward), place_of(*ward)));
    return;
  }
  silent_rounds_ = ward->beats == beats_ ? silent_rounds_ + 1 : 0;
  beats_ = ward->beats;
  if (silent_rounds_ * round_ < silence_) return;
  const RankRecords all = read_all();
  const RankRecord* waiting = wait_for(ward_, all);
  end_with(fmt::format("{} shows no sign of life for {:.3g} s, {}{}", name_of(ward_, *ward),
                       silence_.count(), place_of(*ward),
                       waiting != nullptr ? "; " + arrivals(*waiting, all, ward_) : ""));
}

void Watch::end_with(const std::string& fault) {
  if (!board_->first_to_speak()) return;
  fmt::print(stderr, "pecia: {}\n", fault);
  end_job_();
}

std::optional<bool> Watch::first_to_speak() {
  if (board_ == nullptr) return {};
  return board_->first_to_speak();
}

std::string Watch::account() const {
  if (board_ == nullptr) return {};
  std::string text;
  const RankRecords all = read_all();
  for (int rank = 0; rank < board_->size(); ++rank)
    if (all[rank] && board_->is_dead(rank))
      text += fmt::format("; {} has died {}", name_of(rank, *all[rank]), place_of(*all[rank]));
  const std::string waits = arrivals(record_of(*activity_, {}), all);
  return waits.empty() ? text : text + "; " + waits;
}

RankRecords Watch::read_all() const {
  RankRecords all;
  for (int rank = 0; rank < board_->size(); ++rank) all.push_back(board_->read(rank));
  return all;
}

}  // namespace pecia::watch
