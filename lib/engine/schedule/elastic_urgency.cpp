// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/elastic_urgency.hpp"

#include <algorithm>

namespace pecia::schedule {

double due_s(double came_s, double alone_s) {
  constexpr double patience = 25;
  return came_s + patience * alone_s;
}

int64_t short_pass_rows(const PassRates& rates, int64_t cached) {
  constexpr double parts = 20, least = 128, most = 1e9;
  const double row_s = std::max(1e-12, rates.row_s + rates.pair_s * static_cast<double>(cached));
  return static_cast<int64_t>(std::clamp(parts * rates.pass_s / row_s, least, most));
}

bool answers_come_first(const PromptOrAnswers& left) {
  return static_cast<double>(left.answers) * left.prompt_s > left.answers_s;
}

}  // namespace pecia::schedule
