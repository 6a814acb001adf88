// SPDX-License-Identifier: Apache-2.0
#include "lib/simulation/tune/level_choice.hpp"

namespace pecia::tune {

const LevelChoice* find(const std::vector<LevelChoice>& choices, int levels) {
  for (const LevelChoice& choice : choices)
    if (choice.count() == levels) return &choice;
  return nullptr;
}

}  // namespace pecia::tune
