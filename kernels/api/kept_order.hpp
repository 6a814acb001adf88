// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <span>

#include "lib/base/core/tensor_view.hpp"

namespace pecia::kernels {

/// Places next to each other in memory: begin, begin + 1, …
struct PlaceRun {
  int64_t begin, count;
};

/// Some tokens that are put in order together.
struct OrderItem {
  int64_t first_number;             ///< their numbers are entries of KeptOrderArgs::importance
  int64_t count;                    ///< of the tokens
  int64_t first, last;              ///< tokens at the beginning and at the end that come first
  int64_t first_count, num_counts;  ///< entries of KeptOrderArgs::counts, ascending
  int64_t first_run, num_runs;  ///< entries of KeptOrderArgs::runs: where the tokens lie, in turn
  int64_t to;                   ///< the first entry of KeptOrderArgs::order
};

/// Lists tokens in the order in which levels of sparse attention keep them: whatever number of its
/// counts a level keeps, these are the first ones of the list. An item's `first` tokens at the
/// beginning and the `last` ones at the end come first, then the most important ones, and of equal
/// ones the earlier. What no count divides is in the order of the tokens, so that tokens next to
/// each other mostly stay so. An importance that is NaN or negative counts as 0. An entry of the
/// list is the place of its token. Zero items do nothing.
///
///     importance 1 5 2 9 0, first 0, last 1, counts 2 and 4, places from 10 on     13 14 | 11 12 | 10
///
/// Numbers of an item whose counts divide nothing (each is 0 or all its tokens) are not read.
/// Source: CSPS, "which tokens".
struct KeptOrderArgs {
  TensorView importance;             ///< [any] fp32; may be absent where no numbers are read
  std::span<const OrderItem> items;  ///< write different entries
  std::span<const int64_t> counts;   ///< at most most_counts for an item
  std::span<const PlaceRun> runs;
  TensorView order;  ///< [any] int32, written; holds every place

  static constexpr int64_t most_counts = 15;

  std::span<const int64_t> counts_of(const OrderItem& item) const {
    return counts.subspan(item.first_count, item.num_counts);
  }
  std::span<const PlaceRun> runs_of(const OrderItem& item) const {
    return runs.subspan(item.first_run, item.num_runs);
  }
};

/// Whether the order of the item's tokens is not simply their own.
bool divides(const KeptOrderArgs& args, const OrderItem& item);

}  // namespace pecia::kernels
