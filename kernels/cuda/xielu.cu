// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/shared/elementwise.cuh"
#include "kernels/cuda/xielu_kernel.cuh"

namespace pecia::kernels::cuda {

void xielu(const XieluArgs& args, Context&, device::Stream& stream) {
  const auto x = matrix<const float>(args.x);
  with_stored_type(args.out.dtype(), [&](auto type) {
    using Out = decltype(type);
    const auto out = matrix<Out>(args.out);
    if (aligned_to<4>(args.x) && aligned_to<4>(args.out))
      launch(stream, grid_of_rows(out.rows, out.columns / 4), xielu_kernel<4, Out>, x, out,
             args.curve);
    else
      launch(stream, grid_of_rows(out.rows, out.columns), xielu_kernel<1, Out>, x, out, args.curve);
  });
}

}  // namespace pecia::kernels::cuda
