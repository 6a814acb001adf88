// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "kernels/reference/reference.hpp"

namespace pecia::kernels::reference {
namespace {

/// Row `row` of the item; those before its first one are in its tail.
const float* conv_row(const CausalConvArgs& args, const StateRows& item, int64_t row) {
  const int64_t kept = args.kept_rows();
  return row >= 0 ? row_of(args.x, item.first_row + row)
                  : row_of(args.tails, (item.state + 1) * kept + row);
}

}  // namespace

void causal_conv(const CausalConvArgs& args) {
  const int64_t channels = args.x.size(1), kept = args.kept_rows();
  for (const StateRows& item : args.items) {
    for (int64_t t = 0; t < item.num_rows; ++t)
      for (int64_t c = 0; c < channels; ++c) {
        double sum = args.bias ? args.bias.as<float>()[c] : 0;
        for (int64_t j = 0; j <= kept; ++j)
          sum += double{row_of(args.weight, c)[j]} * conv_row(args, item, t - kept + j)[c];
        row_of(args.out, item.first_row + t)[c] = static_cast<float>(sum / (1 + std::exp(-sum)));
      }
    for (int64_t j = 0; item.num_rows > 0 && j < kept; ++j)
      std::copy_n(conv_row(args, item, item.num_rows - kept + j), channels,
                  row_of(args.tails, item.state * kept + j));
  }
}

}  // namespace pecia::kernels::reference
