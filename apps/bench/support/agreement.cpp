// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/support/agreement.hpp"

#include <cmath>

namespace pecia::bench {

void check_together(comm::Communicator& world, const std::string& problem) {
  const auto problems = world.all_gather(std::as_bytes(std::span(problem)));
  for (size_t rank = 0; rank < problems.size(); ++rank)
    if (!problems[rank].empty())
      fail<CheckFailed>(
          "check failed on rank {}: {}", rank,
          std::string(reinterpret_cast<const char*>(problems[rank].data()), problems[rank].size()));
}

std::string difference(std::span<const float> actual, std::span<const float> expected,
                       double tolerance) {
  if (actual.size() != expected.size())
    return fmt::format("{} values, expected {}", actual.size(), expected.size());
  if (actual.empty()) return "there are no values";
  size_t worst = 0;
  double largest = -1;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double distance = std::fabs(double{actual[i]} - double{expected[i]});
    if (!(distance <= largest)) worst = i, largest = std::isnan(distance) ? INFINITY : distance;
  }
  if (largest <= tolerance) return "";
  return fmt::format("value {} is {}, expected {}; the tolerance is {}", worst, actual[worst],
                     expected[worst], tolerance);
}

}  // namespace pecia::bench
