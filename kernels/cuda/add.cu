// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/shared/elementwise.cuh"
#include "kernels/cuda/shared/elementwise_kernels.cuh"

namespace pecia::kernels::cuda {

void add(const AddArgs& args, Context&, device::Stream& stream) {
  const auto x = matrix<const float>(args.x);
  const auto y = matrix<float>(args.y);
  if (aligned_to<4>(args.x) && aligned_to<4>(args.y))
    launch(stream, grid_of_rows(y.rows, y.columns / 4), add_kernel<4>, x, y);
  else
    launch(stream, grid_of_rows(y.rows, y.columns), add_kernel<1>, x, y);
}

}  // namespace pecia::kernels::cuda
