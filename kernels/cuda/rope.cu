// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/shared/elementwise.cuh"
#include "kernels/cuda/shared/elementwise_kernels.cuh"

namespace pecia::kernels::cuda {
namespace {

/// Elements of heads beyond rotary_dim, [rows · heads, head_dim − rotary_dim].
TensorView beyond(const TensorView& heads, int64_t rotary_dim) {
  const int64_t head_dim = heads.size(2);
  return heads.reshape({heads.rows() * heads.size(1), head_dim})
      .slice_columns(rotary_dim, head_dim - rotary_dim);
}

}  // namespace

void rope(const RopeArgs& args, Context&, device::Stream& stream) {
  const int64_t heads = args.x.size(1), head_dim = args.x.size(2), half = args.cos.size(1);
  const bool in_vectors = args.pairs == RopePairs::halves && half % 4 == 0 && head_dim % 4 == 0 &&
                          aligned_to<4>(args.x) && aligned_to<4>(args.out) &&
                          aligned_to<4>(args.cos) && aligned_to<4>(args.sin);
  with_stored_type(args.out.dtype(), [&](auto type) {
    using Out = decltype(type);
    launch(stream, grid_of_rows(args.x.rows(), heads * half / (in_vectors ? 4 : 1)),
           in_vectors ? rope_kernel<4, Out> : rope_kernel<1, Out>, matrix<const float>(args.x),
           heads, head_dim, matrix<const float>(args.cos), matrix<const float>(args.sin),
           args.pairs, matrix<Out>(args.out));
    if (args.out.data() == args.x.data() || 2 * half == head_dim) return;
    const TensorView from = beyond(args.x, 2 * half), to = beyond(args.out, 2 * half);
    launch(stream, grid_of_rows(from.rows(), from.size(1)), convert_kernel<1, float, Out>,
           matrix<const float>(from), matrix<Out>(to));
  });
}

}  // namespace pecia::kernels::cuda
