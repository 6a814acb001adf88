// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/slot_pool.hpp"

#include <algorithm>
#include <iterator>

#include "lib/base/core/error.hpp"

namespace pecia::attention {

SlotPool::SlotPool(int64_t capacity) : capacity_(capacity), free_count_(capacity) {
  if (capacity > 0) free_[0] = capacity;
}

std::vector<parallel::SlotRange> SlotPool::take(int64_t count, int64_t next) {
  PECIA_CHECK(0 <= count && count <= free_count_, "{} slots wanted, {} are free", count,
              free_count_);
  free_count_ -= count;
  std::vector<parallel::SlotRange> slots;
  while (count > 0) {
    const auto holds_all = [&](const auto& free) { return free.second - free.first >= count; };
    // The next one, or one gap that holds them all if there is one, else the first.
    auto gap = free_.find(next);
    if (gap == free_.end() || !holds_all(*gap))
      gap = std::find_if(free_.begin(), free_.end(), holds_all);
    if (gap == free_.end()) gap = free_.begin();
    const auto [begin, end] = *gap;
    const int64_t taken = std::min(count, end - begin);
    free_.erase(gap);
    if (begin + taken < end) free_[begin + taken] = end;
    slots.push_back({begin, begin + taken});
    count -= taken;
  }
  return slots;
}

void SlotPool::give_back(const std::vector<parallel::SlotRange>& slots) {
  for (const parallel::SlotRange& range : slots) {
    if (range.size() == 0) continue;
    free_count_ += range.size();
    auto next = free_.upper_bound(range.begin);
    int64_t begin = range.begin, end = range.end;
    if (next != free_.end() && next->first == end) {
      end = next->second;
      next = free_.erase(next);
    }
    if (next != free_.begin() && std::prev(next)->second == begin) begin = std::prev(next)->first;
    free_[begin] = end;
  }
}

void SlotPool::verify(std::vector<parallel::SlotRange> taken) const {
  int64_t free = 0;
  for (const auto& [begin, end] : free_) {
    taken.push_back({begin, end});
    free += end - begin;
  }
  PECIA_CHECK(free == free_count_, "{} slots are free, {} are counted", free, free_count_);
  std::ranges::sort(taken, {}, &parallel::SlotRange::begin);
  int64_t next = 0;
  for (const parallel::SlotRange& range : taken) {
    if (range.size() == 0) continue;
    PECIA_CHECK(range.begin == next, "slot {} {}", std::min(range.begin, next),
                range.begin < next ? "has two owners" : "has no owner and is not free");
    next = range.end;
  }
  PECIA_CHECK(next == capacity_, "slot {} of {} has no owner and is not free", next, capacity_);
}

}  // namespace pecia::attention
