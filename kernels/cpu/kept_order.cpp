// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/shared/parallel.hpp"

namespace pecia::kernels::cpu {
namespace {

/// Puts the tokens 0, 1, … in order: each count divides what is left of them after the one before.
void divide(const KeptOrderArgs& args, const OrderItem& item, std::span<int32_t> tokens) {
  const float* const importance =
      static_cast<const float*>(args.importance.data()) + item.first_number;
  const auto weight = [&](int32_t token) {
    const bool is_first = token < item.first || token >= item.count - item.last;
    return std::pair(is_first, !is_first && importance[token] > 0 ? importance[token] : 0.0f);
  };
  const auto before = [&](int32_t a, int32_t b) {
    const auto of_a = weight(a), of_b = weight(b);
    return of_a != of_b ? of_a > of_b : a < b;
  };
  auto begin = tokens.begin();
  for (const int64_t count : args.counts_of(item)) {
    const auto end = tokens.begin() + count;
    if (end <= begin) continue;
    std::nth_element(begin, end - 1, tokens.end(), before);
    std::sort(begin, end);
    begin = end;
  }
  std::sort(begin, tokens.end());
}

/// The place of each token. The tokens are mostly in ascending order, so the run of the last one is
/// looked at first.
void find_places(std::span<const PlaceRun> runs, std::span<int32_t> tokens) {
  size_t run = 0;
  int64_t before = 0;  // tokens of the runs before
  for (int32_t& token : tokens) {
    if (token < before) run = 0, before = 0;
    while (token >= before + runs[run].count) before += runs[run++].count;
    token = static_cast<int32_t>(runs[run].begin + token - before);
  }
}

}  // namespace

void kept_order(const KeptOrderArgs& args, const device::Stream& stream) {
  for_each_task(stream, std::ssize(args.items), [&](int64_t task, const Worker&) {
    const OrderItem& item = args.items[task];
    const std::span tokens(args.order.as<int32_t>() + item.to, static_cast<size_t>(item.count));
    std::iota(tokens.begin(), tokens.end(), 0);
    if (divides(args, item)) divide(args, item, tokens);
    find_places(args.runs_of(item), tokens);
  });
}

}  // namespace pecia::kernels::cpu
