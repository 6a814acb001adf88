// SPDX-License-Identifier: Apache-2.0
#include "lib/schedule/elastic_order.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace pecia::schedule {
namespace {

/// Cuts where the next request would bring a unit above `limit`.
std::vector<size_t> cuts_at(double limit, const std::vector<double>& weights) {
  std::vector<size_t> cuts{0};
  double unit = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (i > cuts.back() && unit + weights[i] > limit) cuts.push_back(i), unit = 0;
    unit += weights[i];
  }
  cuts.push_back(weights.size());
  return cuts;
}

/// Cuts to at most `most` units, with the smallest limit.
std::vector<size_t> cuts_to(size_t most, const std::vector<double>& weights) {
  if (weights.size() <= most) return cuts_at(0, weights);
  double low = 0, high = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<size_t> cuts = cuts_at(2 * high, weights);
  for (int step = 0; step < 40; ++step) {
    const double limit = 0.5 * (low + high);
    std::vector<size_t> tried = cuts_at(limit, weights);
    if (tried.size() - 1 > most) {
      low = limit;
    } else {
      high = limit, cuts = std::move(tried);
    }
  }
  return cuts;
}

}  // namespace

LengthOrder length_order(const PassRates& alone, const std::vector<ElasticRequest>& requests,
                         size_t most_units, UnitWeight weight) {
  std::vector<double> length_of(requests.size());
  for (size_t i = 0; i < requests.size(); ++i)
    length_of[i] = alone.row_s * static_cast<double>(requests[i].prompt_tokens) +
                   alone.pair_s * requests[i].pairs();
  LengthOrder order;
  order.requests.resize(requests.size());
  std::iota(order.requests.begin(), order.requests.end(), 0);
  std::stable_sort(order.requests.begin(), order.requests.end(),
                   [&](int32_t a, int32_t b) { return length_of[a] < length_of[b]; });
  std::vector<double> weights;
  for (const int32_t i : order.requests)
    weights.push_back(weight == UnitWeight::length ? length_of[i] : std::sqrt(length_of[i]));
  order.cuts = cuts_to(most_units, weights);
  int64_t tokens = 0, slots = 0;
  double pairs = 0;
  for (size_t i = 0, unit = 0; unit < order.cuts.size(); ++unit) {
    for (; i < order.cuts[unit]; ++i) {
      const ElasticRequest& request = requests[order.requests[i]];
      tokens += request.prompt_tokens, slots += request.slots(), pairs += request.pairs();
    }
    order.tokens.push_back(tokens), order.slots.push_back(slots), order.pairs.push_back(pairs);
  }
  return order;
}

}  // namespace pecia::schedule
