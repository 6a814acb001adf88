// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A tuner's knowledge of a made-up model on four ranks, whose loss and times follow the formulas of
/// the models.

#include <cmath>

#include "lib/tune/tuned.hpp"

namespace pecia::tune {

inline double made_up_loss(int64_t tokens, double drop) {
  return (0.05 * drop - 0.02 * std::log1p(-drop)) *
         (2 - std::log(static_cast<double>(tokens) / 1000) / std::log(8));
}

inline double made_up_time(int64_t tokens, double drop, const LevelChoice& choice) {
  const auto length = static_cast<double>(tokens);
  return 0.5 + 1e-3 * length + 2e-7 * length * length * (0.8 * attended(choice.shares, drop) + 0.2);
}

inline Tuned made_up() {
  Tuned tuned;
  tuned.version = "1.2.3";
  tuned.model_path = "models/made-up", tuned.config_sha256 = std::string(64, 'a');
  tuned.layers = 10;
  tuned.cp = 4;
  for (auto joins :
       std::vector<std::vector<std::vector<int>>>{{{0, 0, 0, 0}}, {{0, 0, 1, 1}, {0, 0, 0, 0}}}) {
    parallel::Levels levels(4, joins);
    auto shares = level_shares(levels, tuned.geometry);
    tuned.levels.push_back({std::move(levels), std::move(shares)});
  }
  for (const int64_t tokens : {1000, 2000, 3000, 8000}) {
    const std::string prompt = "prompt-" + std::to_string(tokens);
    const double dense_s = made_up_time(tokens, 0, tuned.levels[0]);
    tuned.dense.push_back({prompt, tokens, 2.5, dense_s});
    for (const LevelChoice& choice : tuned.levels)
      for (const double drop : {0.0, 0.25, 0.5, 0.75, 0.9}) {
        const double loss = made_up_loss(tokens, drop);
        tuned.samples.push_back({prompt,
                                 tokens,
                                 {drop, choice.count()},
                                 2.5 + loss,
                                 loss,
                                 1 - drop / 2,
                                 made_up_time(tokens, drop, choice),
                                 false});
      }
  }
  return tuned;
}

}  // namespace pecia::tune
