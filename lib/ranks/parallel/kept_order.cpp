// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/parallel/kept_order.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "lib/base/core/error.hpp"

namespace pecia::parallel {

std::vector<int64_t> kept_order(std::span<const float> importance, int64_t first, int64_t last,
                                std::vector<int64_t> counts) {
  const auto tokens = static_cast<int64_t>(importance.size());
  const auto is_number = [&](int64_t number) { return 0 <= number && number <= tokens; };
  PECIA_CHECK(is_number(first) && is_number(last) && std::ranges::all_of(counts, is_number),
              "{} and {} of {} tokens are always kept, or levels keep more than there are", first,
              last, tokens);
  std::ranges::sort(counts);
  std::vector<int64_t> order(tokens);
  std::iota(order.begin(), order.end(), int64_t{0});
  const auto weight = [&](int64_t token) {
    const float of = importance[token];
    return std::pair(token < first || token >= tokens - last, of > 0 ? of : 0.0f);
  };
  const auto before = [&](int64_t a, int64_t b) {
    const auto of_a = weight(a), of_b = weight(b);
    return of_a != of_b ? of_a > of_b : a < b;
  };
  auto begin = order.begin();
  for (const int64_t count : counts) {
    const auto end = order.begin() + count;
    if (end <= begin) continue;
    std::nth_element(begin, end - 1, order.end(), before);
    std::sort(begin, end);
    begin = end;
  }
  std::sort(begin, order.end());
  return order;
}

}  // namespace pecia::parallel
