// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/draft_acceptance.hpp"

#include <algorithm>
#include <bit>

namespace pecia::schedule {

size_t DraftAcceptance::class_of(int64_t match) {
  const auto bits = std::bit_width(static_cast<uint64_t>(std::max<int64_t>(match, 2) - 1));
  return std::min(static_cast<size_t>(bits) - 1, classes - 1);
}

void DraftAcceptance::add(int64_t match, int64_t tried, int64_t accepted) {
  constexpr double kept = 0.98;  // factor of the weight of earlier drafts: about fifty count
  Counted& of = counted_[class_of(match)];
  const auto right = static_cast<double>(accepted);
  of.judged = kept * of.judged + right + (accepted < tried ? 1 : 0);
  of.right = kept * of.right + right;
}

double DraftAcceptance::rate(int64_t match) const {
  // Before there are any, a longer match is the better one. This counts as four tokens.
  constexpr double before = 4;
  constexpr std::array<double, classes> expected = {0.3, 0.5, 0.65, 0.8, 0.9, 0.95};
  const size_t place = class_of(match);
  const Counted& of = counted_[place];
  return (of.right + before * expected[place]) / (of.judged + before);
}

}  // namespace pecia::schedule
