// SPDX-License-Identifier: Apache-2.0
#include "lib/tune/loss_model.hpp"

#include <algorithm>
#include <cmath>

#include "lib/core/error.hpp"
#include "lib/tune/regression.hpp"

namespace pecia::tune {
namespace {

/// Little enough to leave what the samples say, and enough to choose among terms that they cannot
/// tell apart.
constexpr double ridge = 1e-6;

std::array<double, LossModel::terms.size()> terms_of(double drop,
                                                     const std::vector<double>& shares) {
  const double whole = attended(shares, 0);
  return {drop, 1 - std::pow(1 - drop, 8), -std::log1p(-drop), whole - attended(shares, drop),
          std::max(0.0, whole - 1)};
}

double place_of(int64_t tokens, int64_t shortest, int64_t longest) {
  if (shortest >= longest) return 0;
  const auto log = [](int64_t value) { return std::log(static_cast<double>(value)); };
  return (log(std::clamp(tokens, shortest, longest)) - log(shortest)) /
         (log(longest) - log(shortest));
}

}  // namespace

double LossModel::loss(int64_t tokens, double drop, const std::vector<double>& shares) const {
  const double t = place_of(tokens, shortest, longest);
  const auto values = terms_of(drop, shares);
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i)
    sum += values[i] * (coefficients[i].at_shortest * (1 - t) + coefficients[i].at_longest * t);
  return sum;
}

LossModel fit_loss(const std::vector<Sample>& samples, const std::vector<LevelChoice>& choices) {
  PECIA_CHECK(!samples.empty(), "no samples");
  LossModel model;
  const auto [least, most] = std::ranges::minmax(samples, {}, &Sample::tokens);
  model.shortest = least.tokens, model.longest = most.tokens;
  std::vector<std::vector<double>> rows;
  std::vector<double> targets;
  for (const Sample& sample : samples) {
    if (sample.held_out) continue;
    const LevelChoice* choice = find(choices, sample.setting.levels);
    PECIA_CHECK(choice != nullptr, "a sample with {} levels", sample.setting.levels);
    const double t = place_of(sample.tokens, model.shortest, model.longest);
    std::vector<double>& row = rows.emplace_back();
    for (const double value : terms_of(sample.setting.drop, choice->shares)) {
      row.push_back(value * (1 - t));
      row.push_back(value * t);
    }
    targets.push_back(sample.loss);
  }
  const std::vector<double> found = fit_nonnegative(rows, targets, ridge);
  for (size_t i = 0; i < model.coefficients.size(); ++i)
    model.coefficients[i] = {found[2 * i], found[2 * i + 1]};
  return model;
}

}  // namespace pecia::tune
