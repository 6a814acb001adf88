// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/rms_norm_kernel.cuh"
#include "kernels/cuda/shared/launch.cuh"

namespace pecia::kernels::cuda {
namespace {

/// Widest row for which a warp is enough: heads, not hidden states.
constexpr int64_t warp_row = 512;
constexpr int block_threads = 256;

template <int Count, typename W, typename Out>
void run(const RmsNormArgs& args, device::Stream& stream) {
  const auto x = matrix<const float>(args.x);
  const auto out = matrix<Out>(args.out);
  const auto* const weight = static_cast<const W*>(args.weight.data());
  auto* const marks = static_cast<int32_t*>(args.marks.data());
  const auto parts = args.squares ? matrix<const float>(args.squares) : Matrix<const float>{};
  const int64_t whole_width = args.squares ? args.whole_width : x.columns;
  if (x.columns <= warp_row) {
    constexpr int rows_per_block = block_threads / warp_size;
    launch_early(stream,
                 {.x = (x.rows + rows_per_block - 1) / rows_per_block, .threads = block_threads},
                 rms_norm_kernel<warp_size, Count, W, Out>, x, weight, args.eps, out, marks,
                 args.mark, parts, whole_width);
  } else {
    launch_early(stream, {.x = x.rows, .threads = block_threads},
                 rms_norm_kernel<block_threads, Count, W, Out>, x, weight, args.eps, out, marks,
                 args.mark, parts, whole_width);
  }
}

}  // namespace

void rms_norm(const RmsNormArgs& args, Context&, device::Stream& stream) {
  with_stored_type(args.weight.dtype(), [&](auto weight_type) {
    with_stored_type(args.out.dtype(), [&](auto out_type) {
      using W = decltype(weight_type);
      using Out = decltype(out_type);
      if (aligned_to<4>(args.x) && aligned_to<4>(args.out) &&
          reinterpret_cast<uintptr_t>(args.weight.data()) % (4 * sizeof(W)) == 0)
        run<4, W, Out>(args, stream);
      else
        run<1, W, Out>(args, stream);
    });
  });
}

}  // namespace pecia::kernels::cuda
