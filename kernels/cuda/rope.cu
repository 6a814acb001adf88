// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/shared/elementwise.cuh"
#include "kernels/cuda/shared/elementwise_kernels.cuh"

namespace pecia::kernels::cuda {
namespace {

/// `count` elements of each head from `first` on, [rows · heads, count].
TensorView part_of(const TensorView& heads, int64_t first, int64_t count) {
  return heads.reshape({heads.rows() * heads.size(1), heads.size(2)}).slice_columns(first, count);
}

}  // namespace

void rope(const RopeArgs& args, Context&, device::Stream& stream) {
  const int64_t heads = args.x.size(1), head_dim = args.x.size(2), half = args.cos.size(1);
  const float* const scale = args.scale ? args.scale.as<const float>() : nullptr;
  const bool in_vectors = args.pairs == RopePairs::halves && half % 4 == 0 && head_dim % 4 == 0 &&
                          args.first % 4 == 0 && aligned_to<4>(args.x) && aligned_to<4>(args.out) &&
                          aligned_to<4>(args.cos) && aligned_to<4>(args.sin);
  with_stored_type(args.out.dtype(), [&](auto type) {
    using Out = decltype(type);
    launch(stream, grid_of_rows(args.x.rows(), heads * half / (in_vectors ? 4 : 1)),
           in_vectors ? rope_kernel<4, Out> : rope_kernel<1, Out>, matrix<const float>(args.x),
           heads, head_dim, args.first, matrix<const float>(args.cos),
           matrix<const float>(args.sin), args.pairs, scale, matrix<Out>(args.out));
    if (scale == nullptr && args.out.data() == args.x.data()) return;
    const auto others = [&](int64_t first, int64_t count) {
      if (count == 0) return;
      const TensorView from = part_of(args.x, first, count), to = part_of(args.out, first, count);
      launch(stream, grid_of_rows(from.rows(), count), scale_rows_kernel<Out>,
             matrix<const float>(from), scale, heads, matrix<Out>(to));
    };
    const int64_t end = args.first + 2 * half;
    others(0, args.first);
    others(end, head_dim - end);
  });
}

}  // namespace pecia::kernels::cuda
