// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/merge_kernel.cuh"
#include "kernels/cuda/shared/launch.cuh"

namespace pecia::kernels::cuda {

void merge(const MergeArgs& args, Context& context, device::Stream& stream) {
  const int64_t parts = args.part_out.rows(), heads = args.out.size(1);
  if (parts == 0) return;
  const int64_t* const rows = context.staging.send_array(args.rows, stream);
  const MergeParams params = {args.part_out.as<const float>(),
                              args.part_lse.as<const float>(),
                              args.out.as<float>(),
                              args.lse.as<float>(),
                              rows,
                              parts,
                              heads,
                              args.out.size(2)};
  constexpr int threads = 128, warps = threads / warp_size;
  launch(stream, {.x = (parts * heads + warps - 1) / warps, .threads = threads}, merge_kernel,
         params);
}

}  // namespace pecia::kernels::cuda
