// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "kernels/reference/reference.hpp"

namespace pecia::kernels::reference {
namespace {

/// f_e of a row, [1, hidden].
std::vector<float> of_expert(const ExpertsArgs& args, const Expert& expert, int64_t t) {
  const int64_t ffn = expert.gate.rows(), hidden = args.y.size(1);
  std::vector<float> gate(ffn), up(ffn), out(hidden);
  const TensorView x = args.x.slice_rows(t, 1);
  const TensorView gates(gate.data(), DType::fp32, {1, ffn}), ups(up.data(), DType::fp32, {1, ffn});
  linear({.x = x,
          .weight = expert.gate,
          .bias = expert.gate_bias,
          .y = gates,
          .weight_scales = expert.gate_scales});
  linear({.x = x,
          .weight = expert.up,
          .bias = expert.up_bias,
          .y = ups,
          .weight_scales = expert.up_scales});
  gated_activation({gates, ups, gates, args.activation});
  linear({.x = gates,
          .weight = expert.down,
          .bias = expert.down_bias,
          .y = TensorView(out.data(), DType::fp32, {1, hidden}),
          .weight_scales = expert.down_scales});
  return out;
}

}  // namespace

void experts(const ExpertsArgs& args) {
  const int64_t hidden = args.y.size(1), k = args.chosen.size(1);
  for (int64_t t = 0; t < args.y.rows(); ++t) {
    const auto* const chosen = static_cast<const int32_t*>(args.chosen.row(t));
    std::vector<double> sums(hidden);
    for (int64_t j = 0; j < k; ++j) {
      const int64_t here = chosen[j] - args.first_expert;
      if (here < 0 || here >= std::ssize(args.experts)) continue;
      const std::vector<float> out = of_expert(args, args.experts[here], t);
      for (int64_t i = 0; i < hidden; ++i) sums[i] += double{row_of(args.weights, t)[j]} * out[i];
    }
    for (int64_t i = 0; i < hidden; ++i) row_of(args.y, t)[i] = static_cast<float>(sums[i]);
  }
}

}  // namespace pecia::kernels::reference
