// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Into how many micro-partitions levels of sparse attention are best cut, by the simulator of
/// level_time.hpp. The function is pure, as those of ring_rule.hpp, and uses their inputs. The
/// width of a head cancels out.

#include "lib/ranks/parallel/levels.hpp"
#include "lib/ranks/parallel/ring_rule.hpp"

namespace pecia::parallel {

/// The numbers among which is chosen.
inline constexpr int micro_choices[]{1, 2, 4, 8};

/// The number of each level with which a layer is fastest (best_micros), where each partition still
/// has 64 rows of a rank. The link between all ranks counts for all levels.
Micros micros_by_rule(const RingInputs& in, const Levels& levels, const LevelRule& rule);

}  // namespace pecia::parallel
