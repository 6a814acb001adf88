// SPDX-License-Identifier: Apache-2.0
#include "lib/work/resources/sequences_at_once.hpp"

#include <algorithm>

namespace pecia::resources {

int64_t sequences_at_once(const AnswerCost& cost, double weight_rows, int64_t answers,
                          int64_t most) {
  constexpr double tolerance = 0.02;
  const int64_t all = std::max<int64_t>(answers, 1);
  const auto cost_with = [&](int64_t n) {
    const auto waves = static_cast<double>((all + n - 1) / n);
    return cost.rows + cost.tokens * weight_rows * waves / static_cast<double>(all);
  };
  const double limit = (1 + tolerance) * cost_with(most);
  int64_t n = 1;
  while (n < most && cost_with(n) > limit) ++n;
  return n;
}

}  // namespace pecia::resources
