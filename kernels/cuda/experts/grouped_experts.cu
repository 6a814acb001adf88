// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cuda/experts/expert_kernels.cuh"
#include "kernels/cuda/experts/grouped_experts.hpp"
#include "kernels/cuda/linear/code_views.cuh"
#include "kernels/cuda/linear/coded_linear.hpp"
#include "kernels/cuda/shared/elementwise.cuh"

namespace pecia::kernels::cuda {
namespace {

// The products of a row with its experts wait for their sum in so much memory.
constexpr int64_t products_bytes = int64_t{64} << 20;

bool is_grouped(const TensorView& weight, const TensorView& scales) {
  return weight.dtype() == DType::bf16 || is_coded(weight.dtype(), scales);
}

/// The tables of experts on the device, and whether all their rows begin at multiples of 16 bytes.
struct Tables {
  const GateAndUp* gates;
  const CodedMatrix* downs;
  bool aligned_gates = true, aligned_downs = true;
};

Tables send_tables(const ExpertsArgs& args, Context& context, device::Stream& stream) {
  Tables tables{};
  std::vector<GateAndUp> gates;
  std::vector<CodedMatrix> downs;
  const int64_t hidden = args.x.size(1), ffn = args.experts.front().gate.rows();
  for (const Expert& expert : args.experts) {
    gates.push_back({coded_matrix_of(expert.gate, expert.gate_scales, expert.gate_bias, hidden),
                     coded_matrix_of(expert.up, expert.up_scales, expert.up_bias, hidden)});
    downs.push_back(coded_matrix_of(expert.down, expert.down_scales, expert.down_bias, ffn));
    tables.aligned_gates = tables.aligned_gates && begin_at_chunks(gates.back().gate.rows) &&
                           begin_at_chunks(gates.back().up.rows);
    tables.aligned_downs = tables.aligned_downs && begin_at_chunks(downs.back().rows);
  }
  const std::span<const GateAndUp> all_gates = gates;
  const std::span<const CodedMatrix> all_downs = downs;
  context.staging.begin(Staging::bytes_of(all_gates) + Staging::bytes_of(all_downs), stream);
  tables.gates = context.staging.add(all_gates);
  tables.downs = context.staging.add(all_downs);
  context.staging.send(stream);
  return tables;
}

}  // namespace

bool takes_grouped(const ExpertsArgs& args) {
  const Expert& first = args.experts.front();
  return is_grouped(first.gate, first.gate_scales) && is_grouped(first.down, first.down_scales) &&
         std::ranges::all_of(args.experts, [&](const Expert& expert) {
           return expert.gate.dtype() == first.gate.dtype() &&
                  expert.up.dtype() == first.gate.dtype() &&
                  expert.down.dtype() == first.down.dtype();
         });
}

void grouped_experts(const ExpertsArgs& args, const TensorView& x, Context& context,
                     device::Stream& stream) {
  const Tables tables = send_tables(args, context, stream);
  const Expert& expert = args.experts.front();
  const int64_t count = std::ssize(args.experts), k = args.chosen.size(1);
  const int64_t hidden = x.size(1), ffn = expert.gate.rows();
  const int64_t padded_ffn = (ffn + 7) / 8 * 8;
  const int64_t row_bytes = k * hidden * size_of(DType::fp32);
  const int64_t most =
      std::max<int64_t>(coded_rows, products_bytes / std::max<int64_t>(1, row_bytes));
  for (int64_t first = 0; first < x.rows(); first += most) {
    const int64_t rows = std::min(most, x.rows() - first), pairs = rows * k;
    const auto* const chosen = args.chosen.as<const int32_t>() + first * k;
    auto* const offsets =
        context.expert_pairs.tensor(DType::int32, {count + 1 + pairs}).as<int32_t>();
    auto* const order = offsets + count + 1;
    launch(stream, {.x = 1, .shared_bytes = count * size_of(DType::int32)}, group_pairs_kernel,
           chosen, pairs, args.first_expert, count, offsets, order);
    const ExpertPairs grouped{offsets, order};
    const TensorView activated =
        context.activated.tensor(DType::bf16, {pairs, padded_ffn}).slice_columns(0, ffn);
    const TensorView products = context.products.tensor(DType::fp32, {pairs, hidden});
    with_rows(expert.gate.dtype(), false, tables.aligned_gates, [&](auto codes, auto aligned) {
      constexpr int64_t columns = 8 * gate_tiles;
      launch(stream, {.x = (ffn + columns - 1) / columns, .y = count, .threads = coded_threads},
             expert_gate_kernel<decltype(codes), decltype(aligned)::value>,
             matrix<const Bf16>(x.slice_rows(first, rows)), k, tables.gates, grouped,
             args.activation, matrix<Bf16>(activated));
    });
    with_rows(expert.down.dtype(), false, tables.aligned_downs, [&](auto codes, auto aligned) {
      constexpr int64_t columns = 8 * down_tiles;
      launch(stream, {.x = (hidden + columns - 1) / columns, .y = count, .threads = coded_threads},
             expert_down_kernel<decltype(codes), decltype(aligned)::value>,
             matrix<const Bf16>(activated), tables.downs, grouped, matrix<float>(products));
    });
    launch(stream, grid_of_rows(rows, hidden), sum_pairs_kernel, matrix<const float>(products),
           chosen, args.weights.as<const float>() + first * k, k, args.first_expert, count,
           matrix<float>(args.y.slice_rows(first, rows)));
  }
}

}  // namespace pecia::kernels::cuda
