// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/shared/elementwise.cuh"
#include "kernels/cuda/shared/elementwise_kernels.cuh"

namespace pecia::kernels::cuda {

void soft_cap(const SoftCapArgs& args, Context&, device::Stream& stream) {
  const auto x = matrix<float>(args.x);
  if (aligned_to<4>(args.x))
    launch(stream, grid_of_rows(x.rows, x.columns / 4), soft_cap_kernel<4>, x, args.cap);
  else
    launch(stream, grid_of_rows(x.rows, x.columns), soft_cap_kernel<1>, x, args.cap);
}

}  // namespace pecia::kernels::cuda
