// SPDX-License-Identifier: Apache-2.0
#include "lib/simulation/tune/deal.hpp"

#include <algorithm>
#include <cmath>
#include <queue>
#include <tuple>

#include "lib/base/core/error.hpp"

namespace pecia::tune {
namespace {

constexpr int most_steps = 47;  // highest_dealt

bool has_numbers(const HeadTokens& head) {
  return !head.lost.empty() && head.lost.back() > 0;
}

/// Zeros for all heads.
parallel::LayerDrops no_drops(const LayerTokens& layers) {
  parallel::LayerDrops drops;
  for (const std::vector<HeadTokens>& heads : layers)
    drops.emplace_back(std::ranges::any_of(heads, has_numbers) ? heads.size() : 1);
  drops.front() = drops.back() = {0};
  return drops;
}

/// Calls `visit` for each head that may drop tokens.
template <typename Visit>
void for_each_head(const LayerTokens& layers, const Visit& visit) {
  for (size_t layer = 1; layer + 1 < layers.size(); ++layer)
    for (size_t head = 0; head < layers[layer].size(); ++head)
      if (has_numbers(layers[layer][head])) visit(layer, head);
}

double count_heads(const LayerTokens& layers) {
  double count = 0;
  for_each_head(layers, [&](size_t, size_t) { ++count; });
  return count;
}

parallel::LayerDrops deal_evenly(const LayerTokens& layers, double drop) {
  parallel::LayerDrops drops = no_drops(layers);
  for (size_t layer = 1; layer + 1 < layers.size(); ++layer) drops[layer] = {drop};
  return drops;
}

parallel::LayerDrops deal_by_spread(const LayerTokens& layers, double drop) {
  constexpr int halvings = 60;
  double most = 0;
  for_each_head(layers, [&](size_t layer, size_t head) {
    most = std::max(most, layers[layer][head].spread);
  });
  if (!(most > 0)) return deal_evenly(layers, drop);
  const double count = count_heads(layers);
  const auto share = [&](size_t layer, size_t head, double scale) {
    return std::min(highest_dealt, scale * layers[layer][head].spread / most);
  };
  const auto mean = [&](double scale) {
    double sum = 0;
    for_each_head(layers, [&](size_t layer, size_t head) { sum += share(layer, head, scale); });
    return sum / count;
  };
  double low = 0, high = 1;
  while (mean(high) < drop && high < 1e6) high *= 2;
  for (int i = 0; i < halvings; ++i) {
    const double middle = (low + high) / 2;
    (mean(middle) < drop ? low : high) = middle;
  }
  parallel::LayerDrops drops = no_drops(layers);
  for_each_head(layers, [&](size_t layer, size_t head) {
    drops[layer][head] = std::round(share(layer, head, high) * deal_steps) / deal_steps;
  });
  return drops;
}

/// Steps are taken one by one where they cost least.
parallel::LayerDrops deal_by_mass(const LayerTokens& layers, double drop) {
  using Next = std::tuple<double, int, size_t, size_t>;  // cost, step, layer, head
  std::priority_queue<Next, std::vector<Next>, std::greater<>> next;
  const auto add = [&](int step, size_t layer, size_t head) {
    const std::vector<double>& lost = layers[layer][head].lost;
    if (step < most_steps)
      next.emplace(lost[static_cast<size_t>(step) + 1] - lost[static_cast<size_t>(step)], step,
                   layer, head);
  };
  for_each_head(layers, [&](size_t layer, size_t head) { add(0, layer, head); });
  parallel::LayerDrops drops = no_drops(layers);
  for (auto left = std::llround(drop * deal_steps * count_heads(layers)); left > 0 && !next.empty();
       --left) {
    const auto [cost, step, layer, head] = next.top();
    next.pop();
    drops[layer][head] = static_cast<double>(step + 1) / deal_steps;
    add(step + 1, layer, head);
  }
  return drops;
}

int64_t in_thousandths(double drop) {
  constexpr double thousand = 1000;
  return std::llround(thousand * drop);
}

}  // namespace

std::string name_of(Deal deal) {
  switch (deal) {
    case Deal::even:
      return "even";
    case Deal::spread:
      return "spread";
    case Deal::mass:
      return "mass";
  }
  return "?";
}

std::optional<Deal> deal_of(const std::string& name) {
  for (const Deal deal : {Deal::even, Deal::spread, Deal::mass})
    if (name == name_of(deal)) return deal;
  return std::nullopt;
}

parallel::LayerDrops dealt(Deal deal, const LayerTokens& layers, double drop) {
  constexpr size_t fewest = 3;
  PECIA_CHECK(layers.size() >= fewest && drop >= 0 && drop < 1, "{} layers drop {}", layers.size(),
              drop);
  for_each_head(layers, [&](size_t layer, size_t head) {
    PECIA_CHECK(layers[layer][head].lost.size() == deal_steps + 1,
                "{} numbers of head {}, layer {}", layers[layer][head].lost.size(), head, layer);
  });
  switch (deal) {
    case Deal::even:
      return deal_evenly(layers, drop);
    case Deal::spread:
      return deal_by_spread(layers, drop);
    case Deal::mass:
      return deal_by_mass(layers, drop);
  }
  return {};
}

Deals::Deals(const LayerTokens& layers, const std::vector<double>& drops) {
  for (const double drop : drops)
    for (const Deal deal : {Deal::even, Deal::spread, Deal::mass})
      all_.emplace(std::pair(deal, in_thousandths(drop)), dealt(deal, layers, drop));
}

const parallel::LayerDrops& Deals::of(Deal deal, double drop) const {
  const auto found = all_.find({deal, in_thousandths(drop)});
  PECIA_CHECK(found != all_.end(), "drop {} is not dealt out by {}", drop, name_of(deal));
  return found->second;
}

}  // namespace pecia::tune
