// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Times of repeated runs on all ranks.

#include <chrono>
#include <functional>
#include <vector>

#include "lib/ranks/comm/communicator.hpp"

namespace pecia::bench {

struct Spread {
  double median, min, max;
};

/// The spread of at least one value.
Spread spread(std::vector<double> values);

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

/// Runs `action` `runs` times, each time after a barrier, and returns the slowest rank's seconds
/// for each. The caller warms up before. Collective.
std::vector<double> timed_runs(comm::Communicator& world, int runs,
                               const std::function<void()>& action);

}  // namespace pecia::bench
