// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Least squares with coefficients of at least 0. Where no term falls as something grows, neither
/// does such a sum of terms.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pecia::tune {

/// Returns the coefficients c ≥ 0 that minimise the mean of (target − Σ c·term)² plus
/// ridge · Σ (c · root mean square of the term)². `rows` has the terms of each sample. A term that
/// is 0 in all samples gets the coefficient 0. The same input gives the same bits. Throws
/// InvalidArgument unless rows are as long as each other and as many as targets.
std::vector<double> fit_nonnegative(const std::vector<std::vector<double>>& rows,
                                    const std::vector<double>& targets, double ridge = 0);

/// Chooses a fifth of so many samples (rounded down), scattered and always the same ones.
std::vector<bool> held_out(size_t count);

/// How far predictions are from what was measured.
struct FitError {
  int64_t samples = 0;
  double mean_absolute = 0;  ///< in the unit of the values
  /// Samples whose value is large enough that a relative error says something.
  int64_t large_samples = 0;
  double accuracy = 0;  ///< 1 − mean relative error of these; 0 where there are none
};
/// `least`: the smallest value that counts as large.
FitError error_of(const std::vector<double>& predicted, const std::vector<double>& measured,
                  double least);

}  // namespace pecia::tune
