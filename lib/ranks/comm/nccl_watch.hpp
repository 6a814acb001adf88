// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The operations under way in a group of NCCL and its splits, and what happens when they make no
/// progress: all groups are aborted, and an error names the oldest operation.

#include <chrono>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lib/base/device/device.hpp"
#include "lib/ranks/comm/call_watch.hpp"
#include "lib/ranks/comm/nccl.hpp"

namespace pecia::comm {

/// A group, its splits and their sums in one shot, which may be aborted together from any thread.
class NcclGroups {
 public:
  void add(Abortable& group);
  /// Returns when the group is not being aborted.
  void remove(Abortable& group);
  void abort();
  std::string asynchronous_error();

 private:
  std::mutex mutex_;
  std::list<Abortable*> all_;
};

class NcclWatch {
 public:
  using Clock = std::chrono::steady_clock;
  struct Started {
    const char* operation;
    int64_t number;
    std::string peers;
    std::shared_ptr<device::Event> done;
    Clock::time_point at;
  };

  /// `computing` is the stream whose graphs may have operations of the groups; it outlives this
  /// object. Without a timeout (0) only errors of NCCL count. `late` is told of a call that does not
  /// return, after the groups were aborted or did not let themselves be aborted in time.
  NcclWatch(std::chrono::seconds timeout, device::Stream& computing, CallWatch::Late late);

  CallWatch& calls() { return calls_; }

  void add(Abortable& group) { groups_->add(group); }
  void remove(Abortable& group) { groups_->remove(group); }
  void add(Started started) { started_.push_back(std::move(started)); }

  /// Returns an event that no transfer uses any more, or a new one.
  std::shared_ptr<device::Event> event(device::Device& device);

  /// Checks the operations at most once per millisecond; returns whether it did. Throws SystemError.
  bool poll();

 private:
  void forget_done();
  [[noreturn]] void give_up(std::string words);

  std::chrono::seconds timeout_;
  device::Stream& computing_;
  std::shared_ptr<NcclGroups> groups_ = std::make_shared<NcclGroups>();
  std::deque<Started> started_;
  std::vector<std::shared_ptr<device::Event>> free_;  ///< events whose marks are reached
  Clock::time_point looked_;
  CallWatch calls_;
};

}  // namespace pecia::comm
