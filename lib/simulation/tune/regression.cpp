// SPDX-License-Identifier: Apache-2.0
#include "lib/simulation/tune/regression.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "lib/base/core/error.hpp"

namespace pecia::tune {

std::vector<double> fit_nonnegative(const std::vector<std::vector<double>>& rows,
                                    const std::vector<double>& targets, double ridge) {
  constexpr int most_sweeps = 200'000;
  constexpr double still = 1e-13;  // of the largest coefficient
  PECIA_CHECK(!rows.empty() && rows.size() == targets.size(), "{} rows, {} targets", rows.size(),
              targets.size());
  const size_t terms = rows.front().size();
  const auto count = static_cast<double>(rows.size());
  std::vector<double> scale(terms);
  for (const auto& row : rows) {
    PECIA_CHECK(row.size() == terms, "{} terms, before {}", row.size(), terms);
    for (size_t i = 0; i < terms; ++i) scale[i] += row[i] * row[i] / count;
  }
  for (double& each : scale) each = std::sqrt(each);

  // The normal equations over terms of equal size.
  std::vector<std::vector<double>> normal(terms, std::vector<double>(terms));
  std::vector<double> right(terms), found(terms);
  for (size_t i = 0; i < terms; ++i) {
    if (scale[i] == 0) continue;
    for (size_t sample = 0; sample < rows.size(); ++sample) {
      const double value = rows[sample][i] / scale[i] / count;
      right[i] += value * targets[sample];
      for (size_t j = 0; j < terms; ++j)
        if (scale[j] != 0) normal[i][j] += value * rows[sample][j] / scale[j];
    }
    normal[i][i] += ridge;
  }
  // One coefficient after another is set to its best value, which converges to the minimum.
  for (int sweep = 0; sweep < most_sweeps; ++sweep) {
    double moved = 0, largest = 0;
    for (size_t i = 0; i < terms; ++i) {
      if (scale[i] == 0) continue;
      double rest = right[i];
      for (size_t j = 0; j < terms; ++j)
        if (j != i) rest -= normal[i][j] * found[j];
      const double best = std::max(0.0, rest / normal[i][i]);
      moved = std::max(moved, std::abs(best - found[i]));
      largest = std::max(largest, best);
      found[i] = best;
    }
    if (moved <= still * largest) break;
  }
  for (size_t i = 0; i < terms; ++i)
    if (scale[i] != 0) found[i] /= scale[i];
  return found;
}

FitError error_of(const std::vector<Predicted>& values) {
  const double mean_of_normal = std::sqrt(2 / std::numbers::pi);  // of its absolute values
  FitError error;
  double off = 0, size = 0, noise = 0;
  for (const Predicted& value : values) {
    ++error.samples;
    off += std::abs(value.predicted - value.measured);
    size += std::abs(value.measured);
    noise += mean_of_normal * value.error;
  }
  if (values.empty()) return error;
  const auto count = static_cast<double>(values.size());
  error.mean_absolute = off / count, error.noise = noise / count;
  if (size > 0) error.accuracy = 1 - off / size;
  return error;
}

}  // namespace pecia::tune
