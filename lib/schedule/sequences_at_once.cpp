// SPDX-License-Identifier: Apache-2.0
#include "lib/schedule/sequences_at_once.hpp"

#include <algorithm>
#include <cmath>

namespace pecia::schedule {

int64_t sequences_at_once(const AnswerCost& cost, double weight_rows, int64_t most) {
  constexpr double tolerance = 0.02;
  const double shared = cost.tokens * weight_rows;
  const double room = tolerance * cost.rows + (1 + tolerance) * shared / static_cast<double>(most);
  if (!(room > 0)) return most;
  return std::clamp<int64_t>(std::llround(std::ceil(shared / room)), 1, most);
}

}  // namespace pecia::schedule
