// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Sums of hidden states whose bits depend on neither the order of the rows nor who adds which of them.
///
/// Each number is rounded to a multiple of 2^-32, by itself, and these are added as integers. So a mean
/// has the same bits wherever chunks of the prompt end and whichever ranks have its rows, as long as the
/// rows have them. The rounding is at most 2^-33 for each number: what fp32 does to numbers near 2^-8.

#include <cstdint>
#include <span>
#include <vector>

namespace pecia::schedule {

class HiddenSum {
 public:
  static constexpr int fraction_bits = 32;
  static constexpr float least_too_large = 524288;  ///< 2^19: of a number, not of the sum
  /// Rows that can be added at once: their numbers, below 2^51 units each, then fit an int64.
  static constexpr int64_t most_rows = 4096;

  /// Adds `values`, rows of `width` numbers one after the other, at most most_rows.
  void add(std::span<const float> values, int64_t width);
  /// Adds what another rank, or another pass, has.
  void add(const HiddenSum& other);

  /// Number of rows.
  int64_t count() const { return count_; }
  /// Whether a number was NaN, infinite or too large, or the sum does not fit. It stays so.
  bool broken() const { return broken_ != 0; }
  /// The mean of at least one row times `scale`, divided by its length if `normalize` is given; a mean
  /// of zeros stays as it is. [width] fp32, from doubles.
  std::vector<float> mean(double scale, bool normalize) const;

  template <typename A>
  void visit(A& archive) {
    archive(sums_), archive(count_), archive(broken_);
  }

 private:
  void add(std::span<const int64_t> sums);

  std::vector<int64_t> sums_;  ///< [width], in units of 2^-fraction_bits; empty: no row
  int64_t count_ = 0;
  uint8_t broken_ = 0;
};

}  // namespace pecia::schedule
