// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How much faster a rank is while the others wait, and the share of its best rate that it keeps.

#include <vector>

namespace pecia::measure {

/// Seconds of stretches of the same work, which all ranks do together and rank 0 alone by turns.
struct Stretches {
  std::vector<double> together_s, alone_s;

  void add(const Stretches& more);
};

/// Leaves out moments in which a rank had no core. At least one.
double mean_of_middle_half(std::vector<double> seconds);

/// How many times as fast rank 0 is alone: the mean of the middle half of together_s over that of
/// alone_s, at least 1. The middle half leaves out moments in which a rank had no core. It is a mean,
/// since the stretches may be of several kinds of minutes: a host moves the cores of a virtual
/// machine between caches, and two cores that share a path to memory read 1.6 times as fast alone,
/// and two that do not 1.05 times (Zen 5, within 20 s). At least one stretch of each.
double gain_alone(const Stretches& stretches);

/// The share of the rate of `best_s` that all have in the mean of together_s, at most 1.
double lasting_share(const Stretches& stretches, double best_s);

}  // namespace pecia::measure
