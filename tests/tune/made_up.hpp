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
        const Setting setting{drop, choice.count(), {tuned.micros[turn++ % tuned.micros.size()]}};
        tuned.samples.push_back({prompt, tokens, setting, 2.5 + loss, loss, loss / 10, 1 - drop / 2,
                                 0.875 * (1 - drop),
                                 made_up_times().ttft_s(tokens, setting, choice)});
      }
  }
  return tuned;
}

/// Tokens of heads of which later ones concentrate their attention more: what a drop of k / deal_steps
/// loses is (k / deal_steps) to the power of `power`.
inline HeadTokens made_up_head(double power) {
  HeadTokens head{power, {}};
  for (int step = 0; step <= deal_steps; ++step)
    head.lost.push_back(std::pow(static_cast<double>(step) / deal_steps, power));
  return head;
}

/// The same with samples that are dealt out by mass, and lose a third of what even ones do.
inline Tuned made_up_with_deals() {
  Tuned tuned = made_up();
  for (int64_t layer = 0; layer < tuned.facts.layers; ++layer)
    tuned.layer_tokens.push_back({made_up_head(1 + static_cast<double>(layer)), made_up_head(3)});
  tuned.make_deals();
  TimeModel times = made_up_times();
  times.facts.deals = tuned.facts.deals;
  const std::vector<Sample> even = tuned.samples;
  for (Sample sample : even) {
    if (sample.setting.drop == 0) continue;
    sample.setting.deal = Deal::mass;
    sample.loss /= 3, sample.loss_error /= 3, sample.nll = 2.5 + sample.loss;
    sample.ttft_s =
        times.ttft_s(sample.tokens, sample.setting, *find(tuned.levels, sample.setting.levels));
    tuned.samples.push_back(sample);
  }
  return tuned;
}

}  // namespace pecia::tune
