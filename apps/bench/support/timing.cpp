// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/support/timing.hpp"

#include <algorithm>

#include "lib/base/core/error.hpp"

namespace pecia::bench {

Spread spread(std::vector<double> values) {
  PECIA_CHECK(!values.empty(), "the spread of nothing");
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  const double median =
      values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
  return {median, values.front(), values.back()};
}

std::vector<double> timed_runs(comm::Communicator& world, int runs,
                               const std::function<void()>& action) {
  std::vector<double> seconds;
  for (int run = 0; run < runs; ++run) {
    world.barrier();
    const Stopwatch watch;
    action();
    const auto mine_ns = static_cast<int64_t>(watch.seconds() * 1e9);
    seconds.push_back(static_cast<double>(world.all_reduce_max(mine_ns)) * 1e-9);
  }
  return seconds;
}

}  // namespace pecia::bench
