// SPDX-License-Identifier: Apache-2.0
/// Experts of bf16 and of codes are multiplied by grouped_experts. For experts of fp32 and fp16 every
/// row multiplies with its experts by itself, in two kernels. So weights are read once for each row
/// that chose their expert, and a row's bits depend on nothing else.

#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/experts/expert_groups.cuh"
#include "kernels/cuda/experts/grouped_experts.hpp"
#include "kernels/cuda/experts/next_place.cuh"
#include "kernels/cuda/linear/operand.hpp"
#include "kernels/cuda/shared/bias.cuh"
#include "kernels/cuda/shared/elementwise_kernels.cuh"
#include "kernels/cuda/shared/launch.cuh"
#include "kernels/cuda/shared/warp.cuh"

namespace pecia::kernels::cuda {
namespace {

constexpr int warps_per_block = 8;

template <typename W>
struct ExpertMatrices {
  const W *gate, *up, *down;
  int64_t gate_stride, up_stride, down_stride;
  Bias gate_bias, up_bias, down_bias;
};

/// The experts that are here: `count` of them from number `first` on.
template <typename W>
struct ExpertTable {
  const ExpertMatrices<W>* matrices;
  int64_t first, count;

  __device__ bool has(int32_t expert) const { return expert >= first && expert < first + count; }
  __device__ const ExpertMatrices<W>& of(int32_t expert) const { return matrices[expert - first]; }
};

template <typename A, typename B>
__device__ __forceinline__ float warp_dot(const A* a, const B* b, int64_t count, int lane) {
  float sum = 0;
  for (int64_t i = lane; i < count; i += warp_size) {
    float left[1], right[1];
    load<1>(a + i, left);
    load<1>(b + i, right);
    sum += left[0] * right[0];
  }
  return warp_sum(sum);
}

/// A warp computes one element of activated [rows · k, ffn]. `weights` are of inputs (input_factor).
/// Grid: (rows · k, ffn / warps_per_block, rounded up).
template <typename X, typename W>
__global__ void activated_kernel(Matrix<const X> x, const int32_t* chosen, int64_t k,
                                 const float* weights, ExpertTable<W> experts, Matrix<float> out,
                                 Activation activation) {
  const int64_t pair = blockIdx.x;
  const int64_t column = int64_t{blockIdx.y} * warps_per_block + threadIdx.x / warp_size;
  if (column >= out.columns) return;  // a whole warp
  const int lane = threadIdx.x % warp_size;
  if (!experts.has(chosen[pair])) return;
  const ExpertMatrices<W> expert = experts.of(chosen[pair]);
  const X* const row = x.row(pair / k);
  const float gate = bias_at(expert.gate_bias, column) +
                     warp_dot(row, expert.gate + column * expert.gate_stride, x.columns, lane);
  const float up = bias_at(expert.up_bias, column) +
                   warp_dot(row, expert.up + column * expert.up_stride, x.columns, lane);
  const float factor = input_factor(weights, pair);
  if (lane == 0) out.row(pair)[column] = activated(factor * gate, factor * up, activation);
}

/// A warp computes one element of y. `weights` are of results, or null. Grid: (rows, hidden /
/// warps_per_block, rounded up).
template <typename W>
__global__ void weighted_sum_kernel(Matrix<const float> activated, const int32_t* chosen,
                                    const float* weights, int64_t k, ExpertTable<W> experts,
                                    Matrix<float> y) {
  const int64_t row = blockIdx.x;
  const int64_t column = int64_t{blockIdx.y} * warps_per_block + threadIdx.x / warp_size;
  if (column >= y.columns) return;  // a whole warp
  const int lane = threadIdx.x % warp_size;
  const int32_t* const own = chosen + row * k;
  float sum = 0;
  int32_t before = -1;
  for (int64_t taken = 0; taken < k; ++taken) {
    const int64_t place = next_place(own, k, before);
    before = own[place];
    if (!experts.has(before)) continue;
    const ExpertMatrices<W> expert = experts.of(before);
    const float product =
        warp_dot(activated.row(row * k + place), expert.down + column * expert.down_stride,
                 activated.columns, lane);
    const float weight = weights != nullptr ? weights[row * k + place] : 1.0f;
    sum += weight * (product + bias_at(expert.down_bias, column));
  }
  if (lane == 0) y.row(row)[column] = sum;
}

Grid grid_of_warps(int64_t rows, int64_t columns) {
  return {.x = rows,
          .y = (columns + warps_per_block - 1) / warps_per_block,
          .threads = warps_per_block * warp_size};
}

template <typename W>
const ExpertMatrices<W>* send_experts(const ExpertsArgs& args, Context& context,
                                      device::Stream& stream) {
  std::vector<ExpertMatrices<W>> experts;
  const auto rows_of = [](const TensorView& weight) {
    return static_cast<const W*>(weight.data());
  };
  for (const Expert& expert : args.experts)
    experts.push_back({rows_of(expert.gate), rows_of(expert.up), rows_of(expert.down),
                       expert.gate.row_stride(), expert.up.row_stride(), expert.down.row_stride(),
                       bias_of(expert.gate_bias), bias_of(expert.up_bias),
                       bias_of(expert.down_bias)});
  const std::span<const ExpertMatrices<W>> table = experts;
  context.staging.begin(Staging::bytes_of(table), stream);
  const ExpertMatrices<W>* const there = context.staging.add(table);
  context.staging.send(stream);
  return there;
}

void refuse_other_types(const ExpertsArgs& args) {
  const DType type = args.experts.front().gate.dtype();
  for (const Expert& expert : args.experts)
    for (const TensorView* weight : {&expert.gate, &expert.up, &expert.down})
      if (!is_float(weight->dtype()) || weight->dtype() != type)
        fail<Unsupported>(
            "the CUDA backend multiplies experts whose matrices are all fp32 or all fp16, or each "
            "bf16, int8, int4, mxfp4, nvfp4 or fp8, not {} and {}",
            name_of(type), name_of(weight->dtype()));
}

}  // namespace

void experts(const ExpertsArgs& args, Context& context, device::Stream& stream) {
  const bool grouped = takes_grouped(args);
  if (!grouped) refuse_other_types(args);
  if (args.x.rows() == 0) return;
  if (grouped)
    return grouped_experts(args, aligned_operand(args.x, context.operand, stream), context, stream);
  const Expert& first = args.experts.front();
  const int64_t k = args.chosen.size(1), pairs = args.x.rows() * k;
  const auto* const chosen = args.chosen.as<const int32_t>();
  const auto activated =
      matrix<float>(context.products.tensor(DType::fp32, {pairs, first.gate.rows()}));
  const auto y = matrix<float>(args.y);
  const auto* const weights = args.weights.as<const float>();
  const bool of_inputs = args.weighed == Weighed::inputs;
  const auto run = [&](auto weight_type) {
    with_stored_type(args.x.dtype(), [&](auto x_type) {
      using W = decltype(weight_type);
      using X = decltype(x_type);
      const ExpertTable<W> table{send_experts<W>(args, context, stream), args.first_expert,
                                 std::ssize(args.experts)};
      launch(stream, grid_of_warps(pairs, activated.columns), activated_kernel<X, W>,
             matrix<const X>(args.x), chosen, k, of_inputs ? weights : nullptr, table, activated,
             args.activation);
      launch(
          stream, grid_of_warps(args.x.rows(), y.columns), weighted_sum_kernel<W>,
          Matrix<const float>{activated.data, activated.rows, activated.columns, activated.stride},
          chosen, of_inputs ? nullptr : weights, k, table, y);
    });
  };
  if (first.gate.dtype() == DType::fp16)
    run(Fp16());
  else
    run(float());
}

}  // namespace pecia::kernels::cuda
