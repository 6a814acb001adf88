// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

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

}  // namespace

void route(const RouteArgs& args, const device::Stream& stream) {
  const int64_t experts = args.logits.size(1), k = args.chosen.size(1);
  for_each_range(
      stream, args.logits.rows(), rows_per_task(16 * experts), [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) {
          const auto* const logits = static_cast<const float*>(args.logits.row(t));
          auto* const chosen = static_cast<int32_t*>(args.chosen.row(t));
          choose(logits, experts, chosen, k);
          weigh(logits, experts, args.routing, chosen, k, static_cast<float*>(args.weights.row(t)));
        }
      });
}

}  // namespace pecia::kernels::cpu
