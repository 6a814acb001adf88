// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A tuner's knowledge of a made-up model on four ranks, whose loss and times follow the formulas of
/// the models.

#include <cmath>

#include "lib/simulation/tune/tuned.hpp"

namespace pecia::tune {

/// Straight between the drops of made_up, as the model has it.
inline double made_up_loss(int64_t tokens, double drop) {
  return 0.1 * drop * std::sqrt(4000 / static_cast<double>(tokens));
}

inline TimeModel made_up_times() {
  return {.s_per_token = 1e-3,
          .s_per_dropping_token = 5e-5,
          .s_per_pair = 2e-8,
          .s_per_byte = 5e-7,
          .s_per_near_byte = 1.25e-7,
          .s_per_step = 1e-3,
          .constant_s = 0.5,
          .facts = {.layers = 10,
                    .pass_tokens = 4096,
                    .shape = {.num_heads = 8, .num_kv_heads = 2},
                    .rates = {.flops = 1e9, .bandwidth = 8e6, .all_to_all_bandwidth = 1e7}}};
}

inline Tuned made_up() {
  Tuned tuned;
  tuned.version = "1.2.3";
  tuned.model_path = "models/made-up", tuned.config_sha256 = std::string(64, 'a');
  tuned.cp = 4;
  tuned.micros = {1, 2, 4, 8};
  tuned.facts = made_up_times().facts;
  tuned.levels.emplace_back(parallel::Levels(4, {{0, 0, 0, 0}}), tuned.geometry);
  tuned.levels.emplace_back(parallel::Levels(4, {{0, 0, 1, 1}, {0, 0, 0, 0}}), tuned.geometry);
  for (const int64_t tokens : {1000, 2000, 3000, 8000}) {
    const std::string prompt = "prompt-" + std::to_string(tokens);
    const double dense_s = made_up_times().dense_ttft_s(tokens, tuned.cp);
    tuned.dense.push_back({prompt, tokens, 2.5, 0.875, dense_s});
    size_t turn = 0;
    for (const LevelChoice& choice : tuned.levels)
      for (const double drop : {0.0, 0.25, 0.5, 0.75, 0.9}) {
        const double loss = made_up_loss(tokens, drop);
        const Setting setting{drop, choice.count(), tuned.micros[turn++ % tuned.micros.size()]};
        tuned.samples.push_back({prompt, tokens, setting, 2.5 + loss, loss, loss / 10, 1 - drop / 2,
                                 0.875 * (1 - drop),
                                 made_up_times().ttft_s(tokens, setting, choice)});
      }
  }
  return tuned;
}

}  // namespace pecia::tune
