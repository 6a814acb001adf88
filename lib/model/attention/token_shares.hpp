// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How the attention that tokens receive is spread over them, by layer and KV head: what a tuner needs
/// to know where dropping tokens costs least. The numbers are those by which a layer chooses its keys,
/// so they come from the layer before. Source: CSPS, "objective-oriented configuring".

#include <array>
#include <span>
#include <vector>

#include "lib/base/core/archive.hpp"

namespace pecia::attention {

/// Sums over the tokens of a KV head. They may be added over parts, prompts and ranks.
struct HeadShares {
  /// Drops 0, 1/steps, 2/steps, … are looked at.
  static constexpr int steps = 50;

  double tokens = 0;
  double sum = 0, squares = 0;  ///< of the tokens' numbers
  /// [k]: the attention of the k/steps of each part's tokens that receive least of it.
  std::array<double, steps + 1> below{};

  /// Adds a part's tokens. Reorders `numbers`, which are fp32 and at least 0; NaN counts as 0.
  void add(std::span<float> numbers);
  HeadShares& operator+=(const HeadShares& other);

  /// The standard deviation of the tokens' attention over its mean; 0 of no attention.
  double spread() const;
  /// The share of the head's attention that is lost with each drop; zeros of no attention.
  std::array<double, steps + 1> lost() const;
};

/// [place of a layer among those with attention][KV head of the model], flat.
struct TokenShares {
  int64_t heads = 0;
  std::vector<HeadShares> all;

  bool empty() const { return all.empty(); }
  HeadShares& at(int64_t place, int64_t head) {
    return all.at(static_cast<size_t>(place * heads + head));
  }
  TokenShares& operator+=(const TokenShares& other);

  template <typename A>
  void visit(A& archive) {
    archive(heads), archive(all);
  }
};

}  // namespace pecia::attention
