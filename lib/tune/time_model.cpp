// SPDX-License-Identifier: Apache-2.0
#include "lib/tune/time_model.hpp"

#include "lib/core/error.hpp"
#include "lib/tune/regression.hpp"

namespace pecia::tune {
namespace {

double work(double drop, const std::vector<double>& shares, double sparse_share) {
  return sparse_share * attended(shares, drop) + (1 - sparse_share) * attended(shares, 0);
}

}  // namespace

double sparse_share(int64_t layers) {
  constexpr int64_t dense_layers = 2;
  if (layers <= dense_layers) return 0;
  return static_cast<double>(layers - dense_layers) / static_cast<double>(layers);
}

double TimeModel::ttft_s(int64_t tokens, double drop, const std::vector<double>& shares) const {
  const auto length = static_cast<double>(tokens);
  return s_per_token * length + s_per_pair * length * length * work(drop, shares, sparse_share) +
         constant_s;
}

TimeModel fit_time(const std::vector<Sample>& samples, const std::vector<LevelChoice>& choices,
                   double sparse_share) {
  std::vector<std::vector<double>> rows;
  std::vector<double> targets;
  for (const Sample& sample : samples) {
    if (sample.held_out) continue;
    const LevelChoice* choice = find(choices, sample.setting.levels);
    PECIA_CHECK(choice != nullptr, "a sample with {} levels", sample.setting.levels);
    PECIA_CHECK(sample.ttft_s > 0, "a first token after {} s", sample.ttft_s);
    const auto length = static_cast<double>(sample.tokens);
    const double pairs = length * length * work(sample.setting.drop, choice->shares, sparse_share);
    rows.push_back({length / sample.ttft_s, pairs / sample.ttft_s, 1 / sample.ttft_s});
    targets.push_back(1);
  }
  const std::vector<double> found = fit_nonnegative(rows, targets);
  return {found[0], found[1], found[2], sparse_share};
}

}  // namespace pecia::tune
