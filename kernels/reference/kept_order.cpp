// SPDX-License-Identifier: Apache-2.0
#include <numeric>
#include <vector>

#include "kernels/reference/reference.hpp"

namespace pecia::kernels::reference {
namespace {

void order_item(const KeptOrderArgs& args, const OrderItem& item) {
  std::vector<int64_t> places, tokens(item.count);
  for (const PlaceRun& run : args.runs_of(item))
    for (int64_t i = 0; i < run.count; ++i) places.push_back(run.begin + i);
  std::iota(tokens.begin(), tokens.end(), int64_t{0});
  if (divides(args, item)) {
    const auto* const importance =
        static_cast<const float*>(args.importance.data()) + item.first_number;
    const auto is_first = [&](int64_t token) {
      return token < item.first || token >= item.count - item.last;
    };
    const auto weight = [&](int64_t token) {
      return importance[token] > 0 ? importance[token] : 0.0f;
    };
    std::ranges::stable_sort(tokens, [&](int64_t a, int64_t b) {
      if (is_first(a) != is_first(b)) return is_first(a);
      return !is_first(a) && weight(a) > weight(b);
    });
    int64_t begin = 0;
    for (const int64_t count : args.counts_of(item)) {
      std::sort(tokens.begin() + begin, tokens.begin() + count);
      begin = count;
    }
    std::sort(tokens.begin() + begin, tokens.end());
  }
  int32_t* const order = args.order.as<int32_t>() + item.to;
  for (int64_t i = 0; i < item.count; ++i) order[i] = static_cast<int32_t>(places[tokens[i]]);
}

}  // namespace

void kept_order(const KeptOrderArgs& args) {
  for (const OrderItem& item : args.items) order_item(args, item);
}

}  // namespace pecia::kernels::reference
