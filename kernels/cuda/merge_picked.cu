// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/merge_kernel.cuh"

namespace pecia::kernels::cuda {

void merge_picked(const MergePickedArgs& args, Context& context, device::Stream& stream) {
  constexpr int threads = 128, warps = threads / warp_size;
  with_picked_parts(
      args.parts, context, stream,
      [&](const PickedPartsThere* parts, int64_t count, int64_t most_heads) {
        const auto merge_of = [&](auto type) {
          launch(stream, {.x = (most_heads + warps - 1) / warps, .y = count, .threads = threads},
                 merge_picked_kernel<decltype(type)>, parts, args.out.as<float>(),
                 args.lse.as<float>(), args.out.size(1), args.out.size(2));
        };
        if (args.parts.front().out.dtype() == DType::bf16)
          merge_of(Bf16{});
        else
          merge_of(float{});
      });
}

}  // namespace pecia::kernels::cuda
