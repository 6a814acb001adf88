// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/draft_choice.hpp"

#include <algorithm>
#include <queue>

namespace pecia::schedule {
namespace {

/// The next token of an offer.
struct NextToken {
  size_t offer;
  double right;  ///< how likely it is right, with all before it
  double rows;   ///< that it adds
  double cost;   ///< of these, as parts of the pass without drafts
};

/// The one that gives more for its cost comes first; of equal ones the first offer's.
struct GivesLess {
  bool operator()(const NextToken& a, const NextToken& b) const {
    const double left = a.right * b.cost, right = b.right * a.cost;
    return left != right ? left < right : a.offer > b.offer;
  }
};

}  // namespace

std::vector<int64_t> tokens_worth(std::span<const DraftOffer> offers, const PassWork& without,
                                  const std::function<double(const PassWork&)>& seconds,
                                  bool replays) {
  constexpr double least_gain = 1.05;  // times and rates may be wrong
  constexpr double least_cost = 1e-3;  // a row that fits into a tile has none by itself
  std::vector<int64_t> tried(offers.size()), best(offers.size());
  const double without_s = seconds(without);
  const auto cost_of = [&](double rows, double pairs) {
    PassWork more = without;
    more.rows += rows, more.pairs += rows * pairs;
    return std::max(least_cost, seconds(more) / without_s - 1);
  };
  std::priority_queue<NextToken, std::vector<NextToken>, GivesLess> next;
  const auto offer_next = [&](size_t offer, double before) {
    const auto& [tokens, rate, pairs] = offers[offer];
    if (tried[offer] == tokens) return;
    // Wrong after all before it were right: these, and the row before them, are computed again.
    const double again = replays ? before * (1 - rate) * static_cast<double>(tried[offer] + 1) : 0;
    next.push({offer, before * rate, 1 + again, cost_of(1 + again, pairs)});
  };
  for (size_t offer = 0; offer < offers.size(); ++offer) offer_next(offer, 1);
  PassWork work = without;
  double expected = without.rows;
  double most = least_gain * expected / without_s;
  while (!next.empty()) {
    const auto [offer, right, rows, cost] = next.top();
    next.pop();
    ++tried[offer];
    work.rows += rows;
    work.pairs += rows * offers[offer].pairs;
    expected += right;
    const double rate = expected / seconds(work);
    if (rate > most) most = rate, best = tried;
    offer_next(offer, right);
  }
  return best;
}

}  // namespace pecia::schedule
