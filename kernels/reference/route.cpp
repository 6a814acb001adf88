// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/reference/reference.hpp"

namespace pecia::kernels::reference {
namespace {

/// The first of the largest logits that `taken` does not name; NaN counts as less than all others.
int32_t next_expert(std::span<const float> logits, const std::vector<bool>& taken) {
  int32_t best = -1;
  for (int32_t e = 0; e < static_cast<int32_t>(logits.size()); ++e)
    if (!taken[e] && (best < 0 || logits[e] > logits[best] ||
                      (std::isnan(logits[best]) && !std::isnan(logits[e]))))
      best = e;
  return best;
}

/// The scores and the bias of a row; −∞ in groups that the row takes no expert of.
std::vector<float> keys_of(const RouteArgs& args, std::span<const float> scores) {
  std::vector<float> keys(scores.begin(), scores.end());
  if (args.bias)
    for (size_t e = 0; e < keys.size(); ++e) keys[e] += args.bias.as<const float>()[e];
  const size_t groups = args.sigmoid.groups, width = keys.size() / groups;
  if (groups == 1) return keys;
  std::vector<float> sums;
  for (size_t group = 0; group < groups; ++group) {
    std::vector<float> of_group(keys.begin() + group * width, keys.begin() + (group + 1) * width);
    std::ranges::sort(of_group, std::greater());
    sums.push_back(of_group[0] + of_group[1]);
  }
  std::vector<bool> kept(groups);
  for (int i = 0; i < args.sigmoid.kept_groups; ++i) kept[next_expert(sums, kept)] = true;
  for (size_t e = 0; e < keys.size(); ++e)
    if (!kept[e / width]) keys[e] = -INFINITY;
  return keys;
}

}  // namespace

void route(const RouteArgs& args) {
  const int64_t experts = args.logits.size(1), k = args.chosen.size(1);
  const bool scored = args.routing == Routing::sigmoid;
  for (int64_t t = 0; t < args.logits.rows(); ++t) {
    const std::span<const float> logits(row_of(args.logits, t), experts);
    auto* const chosen = static_cast<int32_t*>(args.chosen.row(t));
    std::vector<bool> taken(experts);
    bool broken = false;
    for (const float logit : logits) broken = broken || std::isnan(logit) || logit == INFINITY;
    std::vector<float> keys(logits.begin(), logits.end()), scores;
    if (scored) {
      for (const float logit : logits) scores.push_back(1.0f / (1.0f + std::exp(-logit)));
      if (!args.sigmoid.by_logits) keys = keys_of(args, scores);
    }
    for (int64_t j = 0; j < k; ++j) {
      chosen[j] = next_expert(keys, taken);
      taken[chosen[j]] = true;
    }
    const double most = logits[chosen[0]];
    const auto share = [&](int64_t e) { return scored ? scores[e] : std::exp(logits[e] - most); };
    double sum = scored ? 1e-20 : 0;
    for (int64_t e = 0; e < experts; ++e)
      if (args.routing == Routing::of_all || taken[e]) sum += share(e);
    if (scored && !args.sigmoid.normed) sum = 1;
    for (int64_t j = 0; j < k; ++j) {
      float& weight = row_of(args.weights, t)[j];
      weight = broken ? NAN : static_cast<float>(args.sigmoid.scale * share(chosen[j]) / sum);
      if (args.scales) weight *= args.scales.as<const float>()[chosen[j]];
    }
  }
}

}  // namespace pecia::kernels::reference
