// SPDX-License-Identifier: Apache-2.0
#include "kernels/api/gpu_traits.hpp"
#include "kernels/cuda/linear/code_views.cuh"
#include "kernels/cuda/linear/coded_linear.hpp"
#include "kernels/cuda/linear/gated_linear_kernel.cuh"
#include "kernels/cuda/linear/operand.hpp"
#include "kernels/cuda/shared/launch.cuh"

namespace pecia::kernels::cuda {
namespace {

// With so many columns two tiles of each matrix leave a block for each of an H100's 132
// multiprocessors, or nearly.
constexpr int64_t columns_of_wide_blocks = 2048;

static_assert(coded_rows == gpu_tile_rows && most_coded_rows == gpu_most_coded_rows);

}  // namespace

bool takes_gated_linear(const GatedLinearArgs& args) {
  return gpu_takes_gated_linear(args);
}

void gated_linear(const GatedLinearArgs& args, Context& context, device::Stream& stream) {
  if (args.out.elements() == 0) return;
  const TensorView x = aligned_operand(args.x, context.operand, stream);
  const auto matrix_of = [&](const TensorView& weight, const TensorView& scales,
                             const TensorView& bias) {
    return coded_matrix_of(weight, scales, bias, x.size(1));
  };
  const GateAndUp weights = {matrix_of(args.gate, args.gate_scales, args.gate_bias),
                             matrix_of(args.up, args.up_scales, args.up_bias)};
  const bool in_chunks = begin_at_chunks(weights.gate.rows) && begin_at_chunks(weights.up.rows);
  with_rows(args.gate.dtype(), in_chunks, [&](auto codes, auto aligned) {
    const auto run = [&](auto tiles) {
      const int64_t columns = 8 * tiles;
      const int64_t row_tiles = (x.rows() + coded_rows - 1) / coded_rows;
      const int64_t column_tiles = (args.out.size(1) + columns - 1) / columns;
      launch(stream, {.x = row_tiles * column_tiles, .threads = coded_threads},
             gated_linear_kernel<decltype(codes), decltype(tiles)::value, decltype(aligned)::value>,
             matrix<const Bf16>(x), weights, args.activation, matrix<Bf16>(args.out));
    };
    // Widened codes of more tiles have no room in a thread's registers.
    if constexpr (std::is_same_v<decltype(codes), Bf16Rows>)
      if (args.out.size(1) >= columns_of_wide_blocks) return run(std::integral_constant<int, 2>());
    run(std::integral_constant<int, 1>());
  });
}

}  // namespace pecia::kernels::cuda
