// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Tries the neighbours of the constants that kernels took from measuring (MeasuredConstant).

#include <functional>
#include <string_view>
#include <vector>

#include "apps/bench/ops/cases.hpp"

namespace pecia::bench::ops {

struct NeighbourTimes {
  std::string_view constant;
  int64_t value, neighbour;
  const Case& one;
  double value_s, neighbour_s;  ///< medians
  bool faster;                  ///< the neighbour, by more than the rounds differ
};

/// Times each case with each neighbour of the constants of its op, and with the constant itself, in
/// turn, and calls `tell` for each.
void try_neighbours(const std::vector<Case>& cases, const Place& place, int runs,
                    const std::function<void(const NeighbourTimes&)>& tell);

}  // namespace pecia::bench::ops
