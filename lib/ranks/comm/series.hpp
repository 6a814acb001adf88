// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Numbers a group's operations and shows the numbers in the rank's Activity. A rank has arrived at
/// an operation when its number is at least as high as that operation's.

#include <algorithm>
#include <cstdint>

#include "lib/base/core/activity.hpp"

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

  /// Switches the numbering of operations to a part of the group, from `after` + 1 on, until the next
  /// call. `part`: a number that all its members give and no one else. 0: the whole group again, whose
  /// numbers go on where they were.
  void enter_team(uint64_t part, int64_t after) {
    if (part_ == 0) whole_number_ = number_;
    part_ = part;
    number_ = part == 0 ? whole_number_ : after;
    if (shown_ == nullptr) return;
    shown_->group = 0;
    shown_->number = number_;
    shown_->group = shown_group();
  }

  int64_t next() {
    ++number_;
    if (shown_ != nullptr) shown_->number = number_;
    return number_;
  }

  void show_wait(const char* operation, int64_t number) {
    activity_.wait.group = shown_group();
    activity_.wait.number = number;
    activity_.wait.operation = operation;
  }
  void show_no_wait() { activity_.wait.operation = ""; }

 private:
  uint64_t shown_group() const { return part_ == 0 ? group_ : group_ ^ part_; }

  Activity& activity_;
  uint64_t group_, part_ = 0;
  int64_t number_ = 0, whole_number_ = 0;
  Activity::Series* shown_ = nullptr;
};

}  // namespace pecia::comm
