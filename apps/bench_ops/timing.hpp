#pragma once
/// Times of repeated runs, after one warm-up.

#include <algorithm>
#include <chrono>
#include <vector>

namespace pecia::bench {

/// Seconds of each run, sorted.
template <typename Action>
std::vector<double> sorted_seconds(int runs, const Action& action) {
  using Clock = std::chrono::steady_clock;
  action();
  std::vector<double> seconds;
  for (int run = 0; run < runs; ++run) {
    const auto begin = Clock::now();
    action();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds;
}

template <typename Action>
double best_seconds(int runs, const Action& action) {
  return sorted_seconds(runs, action).front();
}

}  // namespace pecia::bench
