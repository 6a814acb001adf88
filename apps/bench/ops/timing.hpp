// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Times of repeated runs, after one warm-up.

#include <algorithm>
#include <limits>
#include <vector>

#include "apps/bench/support/timing.hpp"
#include "lib/base/device/device.hpp"

namespace pecia::bench::ops {

/// Seconds of the fastest run.
template <typename Action>
double best_seconds(int runs, const Action& action) {
  action();
  double best = std::numeric_limits<double>::infinity();
  for (int run = 0; run < runs; ++run) {
    const Stopwatch watch;
    action();
    best = std::min(best, watch.seconds());
  }
  return best;
}

/// Seconds of each run of work enqueued on a device's stream, by its events, sorted. Calls of less
/// than a millisecond are repeated, so that the gaps before the first and after the last do not
/// count.
template <typename Action>
std::vector<double> sorted_seconds(int runs, device::Device& device, device::Stream& stream,
                                   const Action& action) {
  const auto begin = device.make_event(), end = device.make_event();
  const auto seconds_of = [&](int calls) {
    begin->record(stream);
    for (int call = 0; call < calls; ++call) action();
    end->record(stream);
    end->synchronize();
    return end->seconds_since(*begin) / calls;
  };
  seconds_of(1);
  constexpr double enough_s = 1e-3;
  const int calls = std::clamp(static_cast<int>(enough_s / (seconds_of(1) + 1e-9)), 1, 100);
  std::vector<double> seconds;
  for (int run = 0; run < runs; ++run) seconds.push_back(seconds_of(calls));
  std::sort(seconds.begin(), seconds.end());
  return seconds;
}

}  // namespace pecia::bench::ops
