// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "lib/core/error.hpp"
#include "lib/tune/tuned.hpp"

namespace pecia::tune {

std::string name_of(parallel::Geometry geometry) {
  return geometry == parallel::Geometry::nested ? "nested" : "disjoint";
}

Candidates Tuned::candidates() const {
  double highest = 0;
  for (const Sample& sample : samples) highest = std::max(highest, sample.setting.drop);
  Candidates candidates;
  for (const double drop : fine_drops())
    if (drop <= highest) candidates.drops.push_back(drop);
  for (const LevelChoice& choice : levels) candidates.levels.push_back(choice.count());
  return candidates;
}

Costs Tuned::costs(int64_t tokens) const {
  const auto shares = [this](int count) -> const std::vector<double>& {
    const LevelChoice* choice = find(levels, count);
    PECIA_CHECK(choice != nullptr, "{} levels", count);
    return choice->shares;
  };
  return {[this, tokens, shares](const Setting& setting) {
            return loss.loss(tokens, setting.drop, shares(setting.levels));
          },
          [this, tokens, shares](const Setting& setting) {
            return time.ttft_s(tokens, setting.drop, shares(setting.levels));
          }};
}

void fit(Tuned& tuned) {
  PECIA_CHECK(tuned.samples.size() >= fewest_samples, "{} samples", tuned.samples.size());
  constexpr double shortest_s = 1e-6;
  const std::vector<bool> held = held_out(tuned.samples.size());
  for (size_t i = 0; i < held.size(); ++i) tuned.samples[i].held_out = held[i];
  tuned.loss = fit_loss(tuned.samples, tuned.levels);
  tuned.time = fit_time(tuned.samples, tuned.levels, sparse_share(tuned.layers));
  std::vector<double> losses, times, expected_losses, expected_times;
  for (const Sample& sample : tuned.samples) {
    if (!sample.held_out) continue;
    const Found expected = tuned.costs(sample.tokens).of(sample.setting);
    losses.push_back(sample.loss), times.push_back(sample.ttft_s);
    expected_losses.push_back(expected.loss), expected_times.push_back(expected.ttft_s);
  }
  tuned.loss_error = error_of(expected_losses, losses, no_loss);
  tuned.time_error = error_of(expected_times, times, shortest_s);
  tuned.chosen = choose(tuned);
}

}  // namespace pecia::tune
