// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/merge_kernel.cuh"
#include "kernels/cuda/shared/launch.cuh"

namespace pecia::kernels::cuda {

namespace {

template <typename T>
void merge_of(const MergeArgs& args, const int64_t* rows, device::Stream& stream) {
  const int64_t parts = args.part_out.rows(), heads = args.out.size(1);
  const MergeParams<T> params = {args.part_out.as<const T>(),
                                 args.part_lse.as<const float>(),
                                 args.out.as<float>(),
                                 args.lse.as<float>(),
                                 rows,
                                 parts,
                                 heads,
                                 args.out.size(2)};
  constexpr int threads = 128, warps = threads / warp_size;
  launch(stream, {.x = (parts * heads + warps - 1) / warps, .threads = threads}, merge_kernel<T>,
         params);
}

}  // namespace

void merge(const MergeArgs& args, Context& context, device::Stream& stream) {
  if (args.part_out.rows() == 0) return;
  const int64_t* const rows = context.staging.send_array(args.rows, stream);
  if (args.part_out.dtype() == DType::bf16)
    merge_of<Bf16>(args, rows, stream);
  else
    merge_of<float>(args, rows, stream);
}

}  // namespace pecia::kernels::cuda
