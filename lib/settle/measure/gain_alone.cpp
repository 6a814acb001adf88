// SPDX-License-Identifier: Apache-2.0
#include "lib/settle/measure/gain_alone.hpp"

#include <algorithm>
#include <numeric>

#include "lib/base/core/error.hpp"

namespace pecia::measure {
namespace {

double mean(std::vector<double>::const_iterator begin, std::vector<double>::const_iterator end) {
  return std::accumulate(begin, end, 0.0) / static_cast<double>(end - begin);
}

}  // namespace

double mean_of_middle_half(std::vector<double> seconds) {
  PECIA_CHECK(!seconds.empty(), "no stretch was measured");
  std::ranges::sort(seconds);
  const std::ptrdiff_t quarter = std::ssize(seconds) / 4;
  return mean(seconds.begin() + quarter, seconds.end() - quarter);
}

void Stretches::add(const Stretches& more) {
  together_s.insert(together_s.end(), more.together_s.begin(), more.together_s.end());
  alone_s.insert(alone_s.end(), more.alone_s.begin(), more.alone_s.end());
}

double gain_alone(const Stretches& stretches) {
  return std::max(
      1.0, mean_of_middle_half(stretches.together_s) / mean_of_middle_half(stretches.alone_s));
}

double lasting_share(const Stretches& stretches, double best_s) {
  PECIA_CHECK(!stretches.together_s.empty(), "no stretch was measured");
  return std::min(1.0, best_s / mean(stretches.together_s.begin(), stretches.together_s.end()));
}

}  // namespace pecia::measure
