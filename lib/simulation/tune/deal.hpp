// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How a mean share of dropped tokens is dealt out over layers and KV heads. Where few tokens of a
/// head get most of the attention, more of the others can go. Pure.
/// Source: CSPS, "objective-oriented configuring", has values in proportion to the standard deviation
/// of each layer's attention scores (Deal::spread). Deal::mass is beyond the paper.

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lib/ranks/parallel/levels.hpp"

namespace pecia::tune {

enum class Deal {
  even,    ///< all layers and heads drop the same share
  spread,  ///< in proportion to the standard deviation of the attention that a head's tokens receive
  mass     ///< so that the attention which dropped tokens receive is least, summed over the heads
};

/// The words of files and options.
std::string name_of(Deal deal);
std::optional<Deal> deal_of(const std::string& name);

/// Shares are multiples of this, up to highest_dealt.
inline constexpr int deal_steps = 50;
inline constexpr double highest_dealt = 0.94;

/// How the tokens of a KV head share the attention that they receive (attention::HeadShares).
struct HeadTokens {
  double spread = 0;         ///< standard deviation over mean
  std::vector<double> lost;  ///< [k]: the share that is lost with a drop of k / deal_steps
  bool operator==(const HeadTokens&) const = default;
};
/// [layer with attention][KV head]. The first and the last layer drop nothing, and are not read. Nor
/// are heads without numbers, as of layers with a window, which drop nothing either.
using LayerTokens = std::vector<std::vector<HeadTokens>>;

/// The shares of all layers, 0 in the first and the last one. The mean of those that drop anything is
/// `drop` up to half a step. Throws InvalidArgument for fewer than three layers, or where a head has
/// other than deal_steps + 1 numbers.
parallel::LayerDrops dealt(Deal deal, const LayerTokens& layers, double drop);

/// The shares of many settings, made once.
class Deals {
 public:
  /// For all drops that are given, and all deals.
  Deals(const LayerTokens& layers, const std::vector<double>& drops);

  /// Throws InvalidArgument for a drop that was not given.
  const parallel::LayerDrops& of(Deal deal, double drop) const;

 private:
  std::map<std::pair<Deal, int64_t>, parallel::LayerDrops> all_;
};

}  // namespace pecia::tune
