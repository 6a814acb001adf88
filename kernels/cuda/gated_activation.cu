// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/shared/elementwise.cuh"
#include "kernels/cuda/shared/elementwise_kernels.cuh"

namespace pecia::kernels::cuda {

void gated_activation(const GatedActivationArgs& args, Context&, device::Stream& stream) {
  const auto gate = matrix<const float>(args.gate), up = matrix<const float>(args.up);
  with_stored_type(args.out.dtype(), [&](auto type) {
    using Out = decltype(type);
    const auto out = matrix<Out>(args.out);
    if (aligned_to<4>(args.gate) && aligned_to<4>(args.up) && aligned_to<4>(args.out))
      launch(stream, grid_of_rows(out.rows, out.columns / 4), gated_activation_kernel<4, Out>, gate,
             up, out, args.activation);
    else
      launch(stream, grid_of_rows(out.rows, out.columns), gated_activation_kernel<1, Out>, gate, up,
             out, args.activation);
  });
}

}  // namespace pecia::kernels::cuda
