// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "lib/ranks/parallel/pass.hpp"

namespace pecia::attention {

/// Slots 0 … capacity − 1, each free or taken.
class SlotPool {
 public:
  explicit SlotPool(int64_t capacity);

  int64_t capacity() const { return capacity_; }
  int64_t free() const { return free_count_; }

  /// Takes `count` slots, in one range if there is a gap that holds them all; from slot `next` on if
  /// they are all free there. Throws InvalidArgument if fewer slots are free.
  std::vector<parallel::SlotRange> take(int64_t count, int64_t next = -1);
  void give_back(const std::vector<parallel::SlotRange>& slots);

  /// Throws InvalidArgument unless each slot is free, or in `taken` once.
  void verify(std::vector<parallel::SlotRange> taken) const;

 private:
  int64_t capacity_, free_count_;
  std::map<int64_t, int64_t> free_;  ///< begin → end of free slots; ranges are never adjacent
};

}  // namespace pecia::attention
