// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/comm/nccl_watch.hpp"

#include <algorithm>
#include <future>
#include <thread>
#include <utility>

#include "lib/base/core/error.hpp"

namespace pecia::comm {
namespace {

constexpr const char* not_in_time = "; NCCL did not abort it in time";

/// Aborts the groups from a thread of its own, since a library in which one call does not return may
/// not return from another. Returns whether that was done within `patience`.
bool abort_within(const std::shared_ptr<NcclGroups>& groups, NcclWatch::Clock::duration patience) {
  auto aborted = std::make_shared<std::promise<void>>();
  const std::future<void> done = aborted->get_future();
  std::thread([groups, aborted] {
    groups->abort();
    aborted->set_value();
  }).detach();
  return done.wait_for(patience) == std::future_status::ready;
}

NcclWatch::Clock::duration patience_of(std::chrono::seconds timeout) {
  constexpr std::chrono::seconds most{10};
  return timeout.count() > 0 ? std::min(timeout, most) : most;
}

/// Aborts the groups, and tells `late` when that is done or not done in time.
CallWatch::Late aborting(std::shared_ptr<NcclGroups> groups, NcclWatch::Clock::duration patience,
                         CallWatch::Late late) {
  return [groups = std::move(groups), patience, late = std::move(late)](const std::string& words) {
    late(words + (abort_within(groups, patience) ? "" : not_in_time));
  };
}

}  // namespace

void NcclGroups::add(Abortable& group) {
  const std::lock_guard lock(mutex_);
  all_.push_back(&group);
}

void NcclGroups::remove(Abortable& group) {
  const std::lock_guard lock(mutex_);
  all_.remove(&group);
}

void NcclGroups::abort() {
  const std::lock_guard lock(mutex_);
  for (Abortable* group : all_) group->abort();
}

std::string NcclGroups::asynchronous_error() {
  const std::lock_guard lock(mutex_);
  for (Abortable* group : all_)
    if (std::string words = group->asynchronous_error(); !words.empty()) return words;
  return "";
}

NcclWatch::NcclWatch(std::chrono::seconds timeout, device::Stream& computing, CallWatch::Late late)
    : timeout_(timeout),
      computing_(computing),
      calls_(timeout, aborting(groups_, patience_of(timeout), std::move(late))) {}

std::shared_ptr<device::Event> NcclWatch::event(device::Device& device) {
  forget_done();
  for (std::shared_ptr<device::Event>& event : free_)
    if (event.use_count() == 1) {
      std::swap(event, free_.back());
      auto taken = std::move(free_.back());
      free_.pop_back();
      return taken;
    }
  return device.make_event();
}

bool NcclWatch::poll() {
  const Clock::time_point now = Clock::now();
  if (now - looked_ < std::chrono::milliseconds(1)) return false;
  looked_ = now;
  forget_done();
  if (const std::string words = groups_->asynchronous_error(); !words.empty()) give_up(words);
  if (timeout_.count() > 0 && !started_.empty() && now - started_.front().at > timeout_)
    give_up(fmt::format("nothing arrived for {} s", timeout_.count()));
  return true;
}

void NcclWatch::forget_done() {
  while (!started_.empty() && started_.front().done->done()) {
    free_.push_back(std::move(started_.front().done));
    started_.pop_front();
  }
}

/// NCCL's abort waits until graphs with operations of the group are gone.
void NcclWatch::give_up(std::string words) {
  computing_.drop_joint_graphs();
  if (!abort_within(groups_, patience_of(timeout_))) words += not_in_time;
  if (started_.empty()) fail<SystemError>("NCCL: {}", words);
  const Started& oldest = started_.front();
  fail<SystemError>("{} #{} with {}: {}", oldest.operation, oldest.number, oldest.peers, words);
}

}  // namespace pecia::comm
