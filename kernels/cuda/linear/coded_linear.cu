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
// With so many columns there is a block for each of an H100's 132 multiprocessors, or nearly. With
// more tiles a thread has too few registers.
constexpr int64_t columns_of_wide_blocks = 2048;
constexpr int wide_tiles = 2, narrow_tiles = 1;

void widen(const TensorView& weight, const TensorView& scales, const TensorView& to,
           device::Stream& stream) {
  const CodeRows rows = code_rows_of(weight, to.size(1));
  const int64_t chunks = (rows.bytes + chunk_bytes - 1) / chunk_bytes;
  with_codes(weight.dtype(), begin_at_chunks(rows), [&](auto codes, auto aligned) {
    launch(stream, grid_of_rows(rows.rows, chunks),
           widen_codes_kernel<decltype(codes), decltype(aligned)::value>, rows,
           code_scales_of(weight, scales), matrix<Bf16>(to));
  });
}

}  // namespace

bool is_coded(DType type, const TensorView& scales) {
  return gpu_multiplies_codes(type, scales);
}

void coded_few_rows(const LinearArgs& args, const TensorView& x, device::Stream& stream) {
  const CodeRows rows = code_rows_of(args.weight, x.size(1));
  with_codes(args.weight.dtype(), begin_at_chunks(rows), [&](auto codes, auto aligned) {
    const auto run = [&](auto tiles) {
      const int64_t columns = 8 * tiles;
      const int64_t blocks =
          (x.rows() + coded_rows - 1) / coded_rows * ((rows.rows + columns - 1) / columns);
      launch(
          stream, {.x = blocks, .threads = coded_threads},
          coded_few_rows_kernel<decltype(codes), decltype(tiles)::value, decltype(aligned)::value>,
          matrix<const Bf16>(x), rows, code_scales_of(args.weight, args.weight_scales),
          bias_of(args.bias), args.accumulate, matrix<float>(args.y));
    };
    if (rows.rows >= columns_of_wide_blocks)
      run(std::integral_constant<int, wide_tiles>());
    else
      run(std::integral_constant<int, narrow_tiles>());
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
    part.weight_scales = {};
    part.y = args.y.slice_columns(first, count);
    widen(args.weight.slice_rows(first, count), args.weight_scales.slice_rows(first, count),
          part.weight, stream);
    const float* const of_part = bias != nullptr ? bias + first : nullptr;
    if (args.row_invariant == RowInvariant::yes)
      linear_invariant(part, x, of_part, context, stream);
    else
      context.matmul->run({x, part.weight, part.y, of_part, args.accumulate}, stream);
  }
}

}  // namespace pecia::kernels::cuda
