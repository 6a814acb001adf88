// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What the remaining time allows the next pass. TimeBudget decides it, a Former keeps to it.

#include <algorithm>
#include <cstdint>
#include <limits>

#include "lib/engine/schedule/plan.hpp"

namespace pecia::schedule {

/// The most of `count` that fits: all of it, or whole `unit`s; 0: not one unit. Less fits wherever
/// more does.
template <typename Fits>
int64_t most_that_fits(int64_t count, int64_t unit, const Fits& fits) {
  if (fits(count)) return count;
  int64_t some = 0, too_many = count / unit + 1;
  while (too_many - some > 1) {
    const int64_t middle = (some + too_many) / 2;
    (fits(middle * unit) ? some : too_many) = middle;
  }
  return some * unit;
}

/// `rows` in whole units, at most `count`: fewer rows of a prompt are not worth a pass.
inline int64_t worth_a_pass(int64_t rows, int64_t count, int64_t unit) {
  return std::min(count, (rows + unit - 1) / unit * unit);
}

struct PassBudget {
  double left_s = std::numeric_limits<double>::infinity();  ///< until the pass has to be over
  const PassTimes* times = nullptr;  ///< how long passes take; null: no end is set
  bool answers_first = false;        ///< answers come before prompts
  bool decodes = true;               ///< a pass with one token of each answer ends in time

  /// New tokens of a prompt that the pass has time for beside the items that it has already: at most
  /// `count`, after `first` cached ones, in whole `unit`s; 0: too few to be worth a pass. The first
  /// pass of a start may be cut but not to 0, since only that pass can show whether the estimate
  /// holds.
  int64_t rows(const Plan& plan, int64_t first, int64_t count, int64_t unit) const;
};

}  // namespace pecia::schedule
