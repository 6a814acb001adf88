// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/api/gpu_traits.hpp"
#include "kernels/cuda/linear/code_views.cuh"
#include "kernels/cuda/linear/coded_few_rows_kernel.cuh"
#include "kernels/cuda/linear/coded_linear.hpp"
#include "kernels/cuda/linear/linear_invariant.hpp"
#include "kernels/cuda/linear/widen_codes_kernel.cuh"
#include "kernels/cuda/shared/elementwise.cuh"

namespace pecia::kernels::cuda {
namespace {

// Half of the L2 cache of an H100, so that widened rows do not leave it before they are read.
constexpr int64_t widened_bytes = int64_t{24} << 20;

void widen(const TensorView& weight, const TensorView& scales, float factor, const TensorView& to,
           device::Stream& stream) {
  const CodeRows rows = code_rows_of(weight, to.size(1));
  const int64_t chunks = (rows.bytes + chunk_bytes - 1) / chunk_bytes;
  with_codes(weight.dtype(), begin_at_chunks(rows), [&](auto codes, auto aligned) {
    launch(stream, grid_of_rows(rows.rows, chunks),
           widen_codes_kernel<decltype(codes), decltype(aligned)::value>, rows,
           code_scales_of(weight, scales, factor), matrix<Bf16>(to));
  });
}

}  // namespace

bool is_coded(DType type, const TensorView& scales) {
  return gpu_multiplies_codes(type, scales);
}

bool reads_few_rows(const LinearArgs& args) {
  const DType type = args.weight.dtype();
  return (type == DType::bf16 || type == DType::fp8) && args.row_invariant == RowInvariant::no &&
         args.x.rows() <= gpu_tile_rows && begin_at_chunks(code_rows_of(args.weight, 0));
}

/// Blocks have tiles of 8 columns. Weights of bf16 are read the fastest where each multiprocessor
/// has 32 warps with two tiles (measured on an H100 with 1 and 16 rows, apps/results/h100.md). Where
/// the columns suffice for two blocks on each only, a block has 16 warps. Other codes than fp8 with
/// a scale for each row have no room for as many warps. Codes are not measured.
void coded_few_rows(const LinearArgs& args, const TensorView& x, const Context& context,
                    device::Stream& stream) {
  const CodeRows rows = code_rows_of(args.weight, x.size(1));
  const int64_t tiles_for_each = rows.rows / (int64_t{8} * context.device.info().multiprocessors);
  const CodeScales scales = code_scales_of(args.weight, args.weight_scales, args.weight_factor);
  with_rows(
      args.weight.dtype(), scales.count == 1, begin_at_chunks(rows), [&](auto codes, auto aligned) {
        const auto run = [&](auto tiles, auto warps, auto blocks) {
          const int64_t columns = 8 * tiles;
          const int64_t grid =
              (x.rows() + coded_rows - 1) / coded_rows * ((rows.rows + columns - 1) / columns);
          launch_early(stream, {.x = grid, .threads = warps * warp_size},
                       coded_few_rows_kernel<decltype(codes), tiles, aligned, warps, blocks>,
                       matrix<const Bf16>(x), rows, scales, bias_of(args.bias), args.accumulate,
                       matrix<float>(args.y));
        };
        constexpr std::integral_constant<int, 1> one;
        constexpr std::integral_constant<int, 2> two;
        constexpr std::integral_constant<int, 4> four;
        constexpr std::integral_constant<int, coded_warps> eight;
        constexpr std::integral_constant<int, 2 * coded_warps> sixteen;
        if constexpr (!many_warps_fit<decltype(codes)>)
          tiles_for_each >= 2 ? run(two, eight, two) : run(one, eight, two);
        else if (tiles_for_each > 4)
          run(two, eight, four);
        else
          tiles_for_each >= 2 ? run(two, sixteen, two) : run(one, sixteen, two);
      });
}

void widened_linear(const LinearArgs& args, const TensorView& x, const float* bias,
                    Context& context, device::Stream& stream) {
  constexpr int64_t aligned = 16 / size_of(DType::bf16);
  const int64_t in = x.size(1), padded = (in + aligned - 1) / aligned * aligned;
  const int64_t out = args.weight.rows();
  const int64_t row_bytes = padded * size_of(DType::bf16);
  const int64_t most = std::max<int64_t>(128, widened_bytes / row_bytes / 128 * 128);
  for (int64_t first = 0; first < out; first += most) {
    const int64_t count = std::min(most, out - first);
    LinearArgs part = args;
    part.weight = context.widened.tensor(DType::bf16, {count, padded}).slice_columns(0, in);
    part.weight_scales = {}, part.weight_factor = 1;
    part.y = args.y.slice_columns(first, count);
    widen(args.weight.slice_rows(first, count), args.weight_scales.slice_rows(first, count),
          args.weight_factor, part.weight, stream);
    const float* const of_part = bias != nullptr ? bias + first : nullptr;
    if (args.row_invariant == RowInvariant::yes)
      linear_invariant(part, x, of_part, context, stream);
    else
      context.matmul->run({x, part.weight, part.y, of_part, args.accumulate}, stream);
  }
}

}  // namespace pecia::kernels::cuda
