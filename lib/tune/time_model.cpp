// SPDX-License-Identifier: Apache-2.0
#include "lib/tune/time_model.hpp"

#include "lib/core/error.hpp"
#include "lib/tune/regression.hpp"

namespace pecia::tune {

double TimeModel::ttft_s(int64_t tokens, double drop, const std::vector<double>& shares) const {
  const auto length = static_cast<double>(tokens);
  return s_per_token * length + s_per_pair * length * length * attended(shares, drop) + constant_s;
}

TimeModel fit_time(const std::vector<Sample>& samples, const std::vector<LevelChoice>& choices) {
  std::vector<std::vector<double>> rows;
  std::vector<double> targets;
  for (const Sample& sample : samples) {
    if (sample.held_out) continue;
    const LevelChoice* choice = find(choices, sample.setting.levels);
    PECIA_CHECK(choice != nullptr, "a sample with {} levels", sample.setting.levels);
    PECIA_CHECK(sample.ttft_s > 0, "a first token after {} s", sample.ttft_s);
    const auto length = static_cast<double>(sample.tokens);
    const double pairs = length * length * attended(choice->shares, sample.setting.drop);
    rows.push_back({length / sample.ttft_s, pairs / sample.ttft_s, 1 / sample.ttft_s});
    targets.push_back(1);
  }
  const std::vector<double> found = fit_nonnegative(rows, targets);
  return {found[0], found[1], found[2]};
}

}  // namespace pecia::tune
