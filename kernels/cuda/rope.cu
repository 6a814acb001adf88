// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/shared/elementwise.cuh"
#include "kernels/cuda/shared/elementwise_kernels.cuh"

namespace pecia::kernels::cuda {

void rope(const RopeArgs& args, Context&, device::Stream& stream) {
  const int64_t rows = args.x.rows(), half = args.cos.size(1);
  const RopeHeads with = {.heads = args.x.size(1),
                          .head_dim = args.x.size(2),
                          .first = args.first,
                          .pairs = args.pairs,
                          .cos = matrix<const float>(args.cos),
                          .sin = matrix<const float>(args.sin),
                          .scale = args.scale ? args.scale.as<const float>() : nullptr};
  const int64_t rest = with.heads * (with.head_dim - 2 * half);
  const bool rest_stays = args.out.data() == args.x.data() && with.scale == nullptr;
  const bool in_vectors = args.pairs == RopePairs::halves && half % 4 == 0 &&
                          with.head_dim % 4 == 0 && args.first % 4 == 0 && aligned_to<4>(args.x) &&
                          aligned_to<4>(args.out) && aligned_to<4>(args.cos) &&
                          aligned_to<4>(args.sin);
  const auto x = matrix<const float>(args.x);
  with_stored_type(args.out.dtype(), [&](auto type) {
    using Out = decltype(type);
    const auto out = matrix<Out>(args.out);
    launch(stream, grid_of_rows(rows, with.heads * half / (in_vectors ? 4 : 1)),
           in_vectors ? rope_kernel<4, Out> : rope_kernel<1, Out>, x, with, out);
    if (rest > 0 && !rest_stays)
      launch(stream, grid_of_rows(rows, rest), rope_rest_kernel<Out>, x, with, out);
  });
}

}  // namespace pecia::kernels::cuda
