// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Least squares with coefficients of at least 0, and how far predictions are off.

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

/// How far predictions are from what was measured.
struct FitError {
  int64_t samples = 0;
  double mean_absolute = 0;  ///< in the unit of the values
  /// What mean_absolute would be if the predictions were right, by the samples' standard errors.
  double noise = 0;
  double accuracy =
      0;  ///< 1 − sum of absolute errors / sum of absolute values; 0 where these are 0
};

/// A prediction of a value, which was measured with a standard error.
struct Predicted {
  double predicted = 0, measured = 0, error = 0;
};
FitError error_of(const std::vector<Predicted>& values);

}  // namespace pecia::tune
