// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/row_times.hpp"

#include <algorithm>
#include <cmath>

namespace pecia::schedule {

size_t RowTimes::group_of(double rows) {
  constexpr double first = 8;
  if (rows <= first) return static_cast<size_t>(std::max(0.0, std::ceil(rows) - 1));
  const auto above = static_cast<size_t>(std::ceil(4 * std::log2(rows / first)));
  return std::min(static_cast<size_t>(first) - 1 + above, groups - 1);
}

double RowTimes::estimated(const PassWork& pass) const {
  return pass.passes * estimate_.pass_s + pass.rows * estimate_.row_s +
         pass.pairs * estimate_.pair_s;
}

void RowTimes::add(const PassWork& pass, double seconds) {
  constexpr int64_t most_counted = 8;
  // One pass that had to wait does not count as more than this.
  constexpr double most_apart = 2;
  const double expected = estimated(pass);
  if (!(seconds > 0) || !(expected > 0)) return;
  Group& group = groups_[group_of(pass.rows)];
  double factor = seconds / expected;
  if (group.passes > 1)
    factor = std::clamp(factor, group.factor / most_apart, group.factor * most_apart);
  const int64_t counted = std::min(++group.passes, most_counted);
  group.factor += (factor - group.factor) / static_cast<double>(counted);
  group.last = ++passes_;
}

double RowTimes::seconds(const PassWork& pass) const {
  const auto at = static_cast<ptrdiff_t>(group_of(pass.rows));
  const auto measured = [](const Group& group) { return group.passes > 0; };
  const auto above = std::find_if(groups_.begin() + at, groups_.end(), measured);
  const auto below = std::find_if(groups_.rend() - at - 1, groups_.rend(), measured);
  const double expected = estimated(pass);
  if (above == groups_.end() && below == groups_.rend()) return expected;
  if (above == groups_.end()) return expected * below->factor;
  if (below == groups_.rend()) return expected * above->factor;
  const ptrdiff_t to_above = above - groups_.begin() - at;
  const ptrdiff_t to_below = at - (groups_.rend() - below - 1);
  if (to_above + to_below == 0) return expected * above->factor;
  const double share = static_cast<double>(to_below) / static_cast<double>(to_above + to_below);
  return expected * (below->factor + share * (above->factor - below->factor));
}

bool RowTimes::knows(double rows) const {
  constexpr int64_t enough = 2, long_ago = 200;
  constexpr double about = 4.0 / 3;
  const auto first = groups_.begin() + static_cast<ptrdiff_t>(group_of(rows / about));
  const auto last = groups_.begin() + static_cast<ptrdiff_t>(group_of(rows * about));
  return std::any_of(first, last + 1, [&](const Group& group) {
    return group.passes >= enough && passes_ - group.last < long_ago;
  });
}

}  // namespace pecia::schedule
