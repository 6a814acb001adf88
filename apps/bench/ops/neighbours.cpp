// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/ops/neighbours.hpp"

#include "apps/bench/ops/timing.hpp"
#include "kernels/api/measured_constants.hpp"

namespace pecia::bench::ops {
namespace {

/// A smaller gain is noise, whatever the rounds say.
constexpr double least_gain = 0.02;

struct InTurn {
  std::vector<double> usual, other;  ///< seconds of each round, sorted
};

InTurn time_in_turn(kernels::MeasuredConstant& constant, int64_t neighbour, const Case& one,
                    const Place& place, int runs) {
  const int64_t usual = constant;
  const auto action = one.make(place);
  InTurn found;
  for (int run = 0; run < runs; ++run)
    for (const bool other : {false, true}) {
      constant.set(other ? neighbour : usual);
      const auto seconds = sorted_seconds(1, place.device, place.stream, action);
      (other ? found.other : found.usual).push_back(seconds.front());
    }
  constant.set(usual);
  std::sort(found.usual.begin(), found.usual.end());
  std::sort(found.other.begin(), found.other.end());
  return found;
}

/// Also that a quarter of the rounds with it may be slow, and a quarter of the others fast.
bool is_faster(const InTurn& times) {
  const size_t runs = times.usual.size(), quarter = runs / 4;
  return times.other[runs / 2] < (1 - least_gain) * times.usual[runs / 2] &&
         times.other[runs - 1 - quarter] < times.usual[quarter];
}

}  // namespace

void try_neighbours(const std::vector<Case>& cases, const Place& place, int runs,
                    const std::function<void(const NeighbourTimes&)>& tell) {
  for (const Case& one : cases)
    for (kernels::MeasuredConstant* const constant : kernels::measured_constants()) {
      if (!constant->name().starts_with(one.op + ".")) continue;
      for (const int64_t neighbour : constant->neighbours()) {
        const InTurn times = time_in_turn(*constant, neighbour, one, place, runs);
        tell({constant->name(), *constant, neighbour, one, spread(times.usual).median,
              spread(times.other).median, is_faster(times)});
      }
    }
}

}  // namespace pecia::bench::ops
