// SPDX-License-Identifier: Apache-2.0
#include "lib/tune/regression.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lib/core/error.hpp"
#include "lib/core/random.hpp"

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

std::vector<bool> held_out(size_t count) {
  constexpr uint64_t key = 20;
  constexpr size_t part = 5;
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [](size_t index) { return uniform(key, index); });
  std::vector<bool> held(count);
  for (size_t i = 0; i < count / part; ++i) held[order[i]] = true;
  return held;
}

FitError error_of(const std::vector<double>& predicted, const std::vector<double>& measured,
                  double least) {
  PECIA_CHECK(predicted.size() == measured.size(), "{} predictions of {} values", predicted.size(),
              measured.size());
  FitError error;
  double relative = 0;
  for (size_t i = 0; i < measured.size(); ++i) {
    const double off = std::abs(predicted[i] - measured[i]);
    ++error.samples;
    error.mean_absolute += off;
    if (measured[i] < least) continue;
    ++error.large_samples;
    relative += off / measured[i];
  }
  if (error.samples > 0) error.mean_absolute /= static_cast<double>(error.samples);
  if (error.large_samples > 0)
    error.accuracy = 1 - relative / static_cast<double>(error.large_samples);
  return error;
}

}  // namespace pecia::tune
