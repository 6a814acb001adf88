// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/shared/parallel.hpp"

namespace pecia::kernels::cpu {
namespace {

/// Writes the k best experts, the best first. An equal one that comes later stays behind.
void choose(const float* logits, int64_t experts, int32_t* chosen, int64_t k) {
  int64_t found = 0;
  for (int64_t e = 0; e < experts; ++e) {
    int64_t place = found;
    while (place > 0 && logits[e] > logits[chosen[place - 1]]) --place;
    if (place == k) continue;
    if (found < k) ++found;
    for (int64_t i = found - 1; i > place; --i) chosen[i] = chosen[i - 1];
    chosen[place] = static_cast<int32_t>(e);
  }
}

void weigh(const float* logits, int64_t experts, Routing routing, const int32_t* chosen, int64_t k,
           float* weights) {
  float most = -std::numeric_limits<float>::infinity();
  bool broken = false;
  for (int64_t e = 0; e < experts; ++e) {
    broken = broken || std::isnan(logits[e]);
    most = std::max(most, logits[e]);
  }
  double sum = 0;
  if (routing == Routing::of_all)
    for (int64_t e = 0; e < experts; ++e) sum += std::exp(logits[e] - most);
  else
    for (int64_t j = 0; j < k; ++j) sum += std::exp(logits[chosen[j]] - most);
  for (int64_t j = 0; j < k; ++j)
    weights[j] = broken ? std::numeric_limits<float>::quiet_NaN()
                        : static_cast<float>(std::exp(logits[chosen[j]] - most) / sum);
}

/// The sum of the two largest of `count` numbers, of which there are two or more.
float two_best(const float* values, int64_t count) {
  float best = std::max(values[0], values[1]), second = std::min(values[0], values[1]);
  for (int64_t i = 2; i < count; ++i) {
    second = std::max(second, std::min(best, values[i]));
    best = std::max(best, values[i]);
  }
  return best + second;
}

/// Makes −∞ of the keys of groups that a row takes no expert of.
void drop_groups(const SigmoidRouting& sigmoid, float* keys, int64_t experts) {
  if (sigmoid.groups == 1) return;
  const int64_t width = experts / sigmoid.groups;
  float sums[most_expert_groups];
  int32_t kept[most_expert_groups];
  for (int group = 0; group < sigmoid.groups; ++group)
    sums[group] = two_best(keys + group * width, width);
  choose(sums, sigmoid.groups, kept, sigmoid.kept_groups);
  for (int group = 0; group < sigmoid.groups; ++group)
    if (std::find(kept, kept + sigmoid.kept_groups, group) == kept + sigmoid.kept_groups)
      std::fill_n(keys + group * width, width, -std::numeric_limits<float>::infinity());
}

/// `scores` and `keys` have room for all experts.
void route_by_scores(const RouteArgs& args, int64_t t, float* scores, float* keys) {
  const int64_t experts = args.logits.size(1), k = args.chosen.size(1);
  const auto* const logits = static_cast<const float*>(args.logits.row(t));
  const auto* const bias = args.bias ? args.bias.as<const float>() : nullptr;
  auto* const chosen = static_cast<int32_t*>(args.chosen.row(t));
  auto* const weights = static_cast<float*>(args.weights.row(t));
  bool broken = false;
  for (int64_t e = 0; e < experts; ++e) {
    broken = broken || std::isnan(logits[e]) || logits[e] == std::numeric_limits<float>::infinity();
    scores[e] = 1.0f / (1.0f + std::exp(-logits[e]));
    keys[e] = args.sigmoid.by_logits ? logits[e] : scores[e] + (bias == nullptr ? 0.0f : bias[e]);
  }
  drop_groups(args.sigmoid, keys, experts);
  choose(keys, experts, chosen, k);
  double sum = 1e-20;
  for (int64_t j = 0; j < k; ++j) sum += scores[chosen[j]];
  const double factor = args.sigmoid.normed ? args.sigmoid.scale / sum : args.sigmoid.scale;
  for (int64_t j = 0; j < k; ++j)
    weights[j] = broken ? std::numeric_limits<float>::quiet_NaN()
                        : static_cast<float>(scores[chosen[j]] * factor);
}

/// A row's weights by the scales of its experts.
void scale_weights(const RouteArgs& args, int64_t t) {
  if (!args.scales) return;
  const auto* const chosen = static_cast<const int32_t*>(args.chosen.row(t));
  auto* const weights = static_cast<float*>(args.weights.row(t));
  for (int64_t j = 0; j < args.chosen.size(1); ++j)
    weights[j] *= args.scales.as<const float>()[chosen[j]];
}

}  // namespace

void route(const RouteArgs& args, const device::Stream& stream) {
  const int64_t experts = args.logits.size(1), k = args.chosen.size(1);
  for_each_range(
      stream, args.logits.rows(), rows_per_task(16 * experts), [&](int64_t begin, int64_t end) {
        if (args.routing == Routing::sigmoid) {
          std::vector<float> scores(experts), keys(experts);
          for (int64_t t = begin; t < end; ++t) {
            route_by_scores(args, t, scores.data(), keys.data());
            scale_weights(args, t);
          }
          return;
        }
        for (int64_t t = begin; t < end; ++t) {
          const auto* const logits = static_cast<const float*>(args.logits.row(t));
          auto* const chosen = static_cast<int32_t*>(args.chosen.row(t));
          choose(logits, experts, chosen, k);
          weigh(logits, experts, args.routing, chosen, k, static_cast<float*>(args.weights.row(t)));
          scale_weights(args, t);
        }
      });
}

}  // namespace pecia::kernels::cpu
