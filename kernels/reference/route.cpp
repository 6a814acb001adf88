// SPDX-License-Identifier: Apache-2.0
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

}  // namespace

void route(const RouteArgs& args) {
  const int64_t experts = args.logits.size(1), k = args.chosen.size(1);
  for (int64_t t = 0; t < args.logits.rows(); ++t) {
    const std::span<const float> logits(row_of(args.logits, t), experts);
    auto* const chosen = static_cast<int32_t*>(args.chosen.row(t));
    std::vector<bool> taken(experts);
    bool broken = false;
    for (const float logit : logits) broken = broken || std::isnan(logit) || logit == INFINITY;
    for (int64_t j = 0; j < k; ++j) {
      chosen[j] = next_expert(logits, taken);
      taken[chosen[j]] = true;
    }
    const double most = logits[chosen[0]];
    double sum = 0;
    for (int64_t e = 0; e < experts; ++e)
      if (args.routing == Routing::of_all || taken[e]) sum += std::exp(logits[e] - most);
    for (int64_t j = 0; j < k; ++j)
      row_of(args.weights, t)[j] =
          broken ? NAN : static_cast<float>(std::exp(logits[chosen[j]] - most) / sum);
  }
}

}  // namespace pecia::kernels::reference
