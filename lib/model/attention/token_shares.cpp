// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/token_shares.hpp"

#include <algorithm>
#include <cmath>

namespace pecia::attention {

void HeadShares::add(std::span<float> numbers) {
  for (float& number : numbers)
    if (!(number > 0)) number = 0;
  std::ranges::sort(numbers);
  tokens += static_cast<double>(numbers.size());
  double before = 0;
  size_t next = 0;
  for (int step = 0; step <= steps; ++step) {
    for (const size_t end = numbers.size() * static_cast<size_t>(step) / steps; next < end; ++next)
      before += double{numbers[next]};
    below[static_cast<size_t>(step)] += before;
  }
  sum += before;
  for (const float number : numbers) squares += double{number} * number;
}

HeadShares& HeadShares::operator+=(const HeadShares& other) {
  tokens += other.tokens, sum += other.sum, squares += other.squares;
  for (size_t step = 0; step < below.size(); ++step) below[step] += other.below[step];
  return *this;
}

double HeadShares::spread() const {
  if (!(sum > 0)) return 0;
  return std::sqrt(std::max(0.0, tokens * squares / (sum * sum) - 1));
}

std::array<double, HeadShares::steps + 1> HeadShares::lost() const {
  std::array<double, steps + 1> shares{};
  for (size_t step = 0; step < below.size() && sum > 0; ++step) shares[step] = below[step] / sum;
  return shares;
}

TokenShares& TokenShares::operator+=(const TokenShares& other) {
  if (empty()) heads = other.heads;
  all.resize(std::max(all.size(), other.all.size()));
  for (size_t i = 0; i < other.all.size(); ++i) all[i] += other.all[i];
  return *this;
}

}  // namespace pecia::attention
