// SPDX-License-Identifier: Apache-2.0
#include "lib/schedule/elastic_urgency.hpp"

namespace pecia::schedule {

double due_s(double came_s, double alone_s) {
  constexpr double patience = 25;
  return came_s + patience * alone_s;
}

bool answers_come_first(const PromptOrAnswers& left) {
  return static_cast<double>(left.answers) * left.prompt_s > left.answers_s;
}

}  // namespace pecia::schedule
