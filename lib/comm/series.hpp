// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Numbers a group's operations and shows the numbers in the rank's Activity. A rank has arrived at
/// an operation when its number is at least as high as that operation's.

#include <algorithm>
#include <cstdint>

#include "lib/core/activity.hpp"

namespace pecia::comm {

/// If a rank has more series than Activity has room for, the excess series are not shown.
class NumberedSeries {
 public:
  NumberedSeries(Activity& activity, uint64_t group) : activity_(activity), group_(group) {
    const auto free = std::ranges::find_if(
        activity.series, [](const Activity::Series& one) { return one.group == 0; });
    if (free == activity.series.end()) return;
    shown_ = &*free;
    shown_->number = 0;
    shown_->group = group;
  }
  NumberedSeries(const NumberedSeries&) = delete;
  NumberedSeries& operator=(const NumberedSeries&) = delete;
  ~NumberedSeries() {
    if (shown_ != nullptr) shown_->group = 0;
  }

  int64_t next() {
    ++number_;
    if (shown_ != nullptr) shown_->number = number_;
    return number_;
  }

  void show_wait(const char* operation, int64_t number) {
    activity_.wait.group = group_;
    activity_.wait.number = number;
    activity_.wait.operation = operation;
  }
  void show_no_wait() { activity_.wait.operation = ""; }

 private:
  Activity& activity_;
  uint64_t group_;
  int64_t number_ = 0;
  Activity::Series* shown_ = nullptr;
};

}  // namespace pecia::comm
