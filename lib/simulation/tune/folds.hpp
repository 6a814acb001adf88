// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Samples that are held out by prompt, so that errors say what a prompt costs that was never seen.

#include <algorithm>
#include <string>
#include <vector>

#include "lib/simulation/tune/setting.hpp"

namespace pecia::tune {

struct Fold {
  std::vector<Sample> fitted, held_out;
};

/// Holds each prompt out once: alone, or with every tenth other one. With one prompt there are
/// none.
inline std::vector<Fold> folds_of(const std::vector<Sample>& samples) {
  constexpr size_t most_folds = 10;
  std::vector<std::string> prompts;
  for (const Sample& sample : samples)
    if (std::ranges::find(prompts, sample.prompt) == prompts.end())
      prompts.push_back(sample.prompt);
  std::vector<Fold> folds(prompts.size() < 2 ? 0 : std::min(prompts.size(), most_folds));
  for (const Sample& sample : samples) {
    const auto place = std::ranges::find(prompts, sample.prompt) - prompts.begin();
    for (size_t i = 0; i < folds.size(); ++i) {
      const bool out = static_cast<size_t>(place) % folds.size() == i;
      (out ? folds[i].held_out : folds[i].fitted).push_back(sample);
    }
  }
  return folds;
}

}  // namespace pecia::tune
