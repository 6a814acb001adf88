// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/parallel/shift_rule.hpp"

#include <algorithm>

#include "lib/base/core/error.hpp"

namespace pecia::parallel {

double step_seconds(const ShiftInputs& inputs, Sharding sharding, int64_t new_tokens) {
  PECIA_CHECK(sharding == Sharding::base || sharding == Sharding::shift, "sharding {}",
              static_cast<int>(sharding));
  const bool shift = sharding == Sharding::shift;
  const double ranks = inputs.sp * inputs.tp, cut = shift ? ranks : inputs.tp;
  const auto product_s = [&](int64_t elements, double bytes) {
    const double read = static_cast<double>(elements) * bytes / cut;
    const double flops =
        2 * static_cast<double>(elements) * static_cast<double>(new_tokens) / ranks;
    return std::max(read / inputs.read_bandwidth, flops / inputs.flops);
  };
  const double sent =
      static_cast<double>(new_tokens) * (shift ? inputs.sent.shift : inputs.sent.base);
  // To heads and back; two sums, each of a scatter and a gather.
  const int exchanges = (!shift && inputs.sp > 1 ? 2 : 0) + (shift || inputs.tp > 1 ? 4 : 0);
  const double layer_s = product_s(inputs.layer_elements, inputs.weight_bytes) +
                         sent / inputs.link_bandwidth + exchanges * inputs.exchange_s;
  return static_cast<double>(inputs.layers) * layer_s +
         product_s(inputs.vocab_elements, inputs.vocab_bytes);
}

int64_t shift_threshold(const ShiftInputs& inputs, int64_t limit) {
  const auto shift_wins = [&](int64_t tokens) {
    return step_seconds(inputs, Sharding::shift, tokens) <=
           step_seconds(inputs, Sharding::base, tokens);
  };
  int64_t tokens = 0;
  while (tokens < limit && shift_wins(tokens + 1)) ++tokens;
  return tokens;
}

}  // namespace pecia::parallel
