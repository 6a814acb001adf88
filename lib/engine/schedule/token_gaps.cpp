// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/token_gaps.hpp"

#include <algorithm>
#include <cmath>

#include "lib/base/core/error.hpp"

namespace pecia::schedule {
namespace {

constexpr double shortest_s = 1e-9, class_width = 1.01;

}  // namespace

void TokenGaps::add(double seconds) {
  PECIA_CHECK(seconds >= 0, "{} s between two tokens", seconds);
  const double ratio = std::max(1.0, seconds / shortest_s);
  ++by_class_[static_cast<int>(std::ceil(std::log(ratio) / std::log(class_width)))];
  ++count_;
}

double TokenGaps::quantile(double share) const {
  const double wanted = share * static_cast<double>(count_);
  int64_t counted = 0;
  for (const auto& [index, count] : by_class_)
    if (counted += count; static_cast<double>(counted) >= wanted)
      return shortest_s * std::pow(class_width, index);
  return 0;
}

}  // namespace pecia::schedule
