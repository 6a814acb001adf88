// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstring>
#include <vector>

#include "kernels/reference/reference.hpp"

namespace pecia::kernels::reference {
namespace {

/// The scales of codes that do not round x.
TensorView of_codes(const TensorView& weight, const TensorView& scales) {
  return weight.dtype() == DType::fp8 && scales.rank() == 1 ? scales.reshape({scales.size(0), 1})
                                                            : scales;
}

/// f_e of some rows of x, [rows, hidden], with the weights that multiply each row's inputs.
std::vector<float> of_expert(const ExpertsArgs& args, const Expert& expert,
                             const std::vector<int64_t>& rows, const std::vector<float>& weights) {
  const auto count = static_cast<int64_t>(rows.size());
  const int64_t ffn = expert.gate.rows(), hidden = args.y.size(1), in = args.x.size(1);
  std::vector<std::byte> gathered(count * in * size_of(args.x.dtype()));
  const TensorView x(gathered.data(), args.x.dtype(), {count, in});
  for (int64_t i = 0; i < count; ++i)
    std::memcpy(x.row(i), args.x.row(rows[i]), in * size_of(args.x.dtype()));
  std::vector<float> gate(count * ffn), up(count * ffn), out(count * hidden);
  const TensorView gates(gate.data(), DType::fp32, {count, ffn});
  const TensorView ups(up.data(), DType::fp32, {count, ffn});
  linear({.x = x,
          .weight = expert.gate,
          .bias = expert.gate_bias,
          .y = gates,
          .weight_scales = of_codes(expert.gate, expert.gate_scales),
          .weight_factor = expert.gate_factor});
  linear({.x = x,
          .weight = expert.up,
          .bias = expert.up_bias,
          .y = ups,
          .weight_scales = of_codes(expert.up, expert.up_scales),
          .weight_factor = expert.up_factor});
  for (int64_t i = 0; i < count * ffn; ++i) gate[i] *= weights[i / ffn], up[i] *= weights[i / ffn];
  gated_activation({gates, ups, gates, args.activation});
  linear({.x = gates,
          .weight = expert.down,
          .bias = expert.down_bias,
          .y = TensorView(out.data(), DType::fp32, {count, hidden}),
          .weight_scales = of_codes(expert.down, expert.down_scales),
          .weight_factor = expert.down_factor});
  return out;
}

}  // namespace

void experts(const ExpertsArgs& args) {
  const int64_t hidden = args.y.size(1), k = args.chosen.size(1);
  const bool of_inputs = args.weighed == Weighed::inputs;
  std::vector<std::vector<float>> results;  // of each expert that is here, for its rows in order
  for (int64_t e = 0; e < std::ssize(args.experts); ++e) {
    std::vector<int64_t> rows;
    std::vector<float> weights;
    for (int64_t t = 0; t < args.y.rows(); ++t)
      for (int64_t j = 0; j < k; ++j)
        if (static_cast<const int32_t*>(args.chosen.row(t))[j] == args.first_expert + e) {
          rows.push_back(t);
          weights.push_back(of_inputs ? row_of(args.weights, t)[j] : 1.0f);
        }
    results.push_back(of_expert(args, args.experts[e], rows, weights));
  }
  std::vector<int64_t> used(args.experts.size());  // of each expert's results
  for (int64_t t = 0; t < args.y.rows(); ++t) {
    const auto* const chosen = static_cast<const int32_t*>(args.chosen.row(t));
    std::vector<double> sums(hidden);
    for (int64_t j = 0; j < k; ++j) {
      const int64_t here = chosen[j] - args.first_expert;
      if (here < 0 || here >= std::ssize(args.experts)) continue;
      const float* const out = results[here].data() + used[here]++ * hidden;
      const double weight = of_inputs ? 1.0 : double{row_of(args.weights, t)[j]};
      for (int64_t i = 0; i < hidden; ++i) sums[i] += weight * out[i];
    }
    for (int64_t i = 0; i < hidden; ++i) row_of(args.y, t)[i] = static_cast<float>(sums[i]);
  }
}

}  // namespace pecia::kernels::reference
