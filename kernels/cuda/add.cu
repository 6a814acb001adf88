// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/shared/elementwise.cuh"
#include "kernels/cuda/shared/elementwise_kernels.cuh"

namespace pecia::kernels::cuda {

namespace {

template <typename T>
void add_of(const AddArgs& args, device::Stream& stream) {
  const auto x = matrix<const T>(args.x);
  const auto y = matrix<float>(args.y);
  if (aligned_to<4>(args.x) && aligned_to<4>(args.y))
    launch(stream, grid_of_rows(y.rows, y.columns / 4), add_kernel<4, T>, x, y, args.scale);
  else
    launch(stream, grid_of_rows(y.rows, y.columns), add_kernel<1, T>, x, y, args.scale);
}

}  // namespace

void add(const AddArgs& args, Context&, device::Stream& stream) {
  if (args.x.dtype() == DType::bf16)
    add_of<Bf16>(args, stream);
  else
    add_of<float>(args, stream);
}

}  // namespace pecia::kernels::cuda
