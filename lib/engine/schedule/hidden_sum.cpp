// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/hidden_sum.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "lib/base/core/error.hpp"

namespace pecia::schedule {
namespace {

constexpr double unit = 1.0 / (int64_t{1} << HiddenSum::fraction_bits);
/// A number below 2^51 that is added to this is rounded to an integer, half to even, and stands in the
/// lowest bits of the sum.
constexpr double rounder = 0x1.8p52;
constexpr auto rounder_bits = std::bit_cast<int64_t>(rounder);

/// Of the absolute value. NaN and infinity have more than any number.
uint32_t magnitude(float value) {
  return std::bit_cast<uint32_t>(value) & 0x7fffffff;
}

}  // namespace

void HiddenSum::add(std::span<const float> values, int64_t width) {
  PECIA_CHECK(
      width > 0 && std::ssize(values) % width == 0 && std::ssize(values) / width <= most_rows,
      "{} numbers in rows of {}", values.size(), width);
  const int64_t rows = std::ssize(values) / width;
  std::vector<int64_t> sums(width);
  uint32_t largest = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const float* const from = values.data() + row * width;
    for (int64_t i = 0; i < width; ++i) {
      const double units = static_cast<double>(from[i]) * (1 / unit) + rounder;
      sums[i] += std::bit_cast<int64_t>(units) - rounder_bits;
      largest = std::max(largest, magnitude(from[i]));
    }
  }
  if (largest >= magnitude(least_too_large)) broken_ = 1;
  count_ += rows;
  add(sums);
}

void HiddenSum::add(const HiddenSum& other) {
  broken_ |= other.broken_;
  count_ += other.count_;
  if (!other.sums_.empty()) add(std::span<const int64_t>(other.sums_));
}

void HiddenSum::add(std::span<const int64_t> sums) {
  sums_.resize(sums.size());
  for (size_t i = 0; i < sums.size(); ++i)
    if (__builtin_add_overflow(sums_[i], sums[i], &sums_[i])) broken_ = 1;
}

std::vector<float> HiddenSum::mean(double scale, bool normalize) const {
  PECIA_CHECK(count_ > 0, "the mean of no row");
  std::vector<double> means;
  double squares = 0;
  for (const int64_t sum : sums_) {
    means.push_back(static_cast<double>(sum) * unit / static_cast<double>(count_) * scale);
    squares += means.back() * means.back();
  }
  const double length = normalize && squares > 0 ? std::sqrt(squares) : 1;
  std::vector<float> vector;
  vector.reserve(means.size());
  for (const double value : means) vector.push_back(static_cast<float>(value / length));
  return vector;
}

}  // namespace pecia::schedule
