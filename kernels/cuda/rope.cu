// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/shared/elementwise.cuh"
#include "kernels/cuda/shared/elementwise_kernels.cuh"

namespace pecia::kernels::cuda {

void rope(const RopeArgs& args, Context&, device::Stream& stream) {
  const int64_t heads = args.x.size(1), head_dim = args.x.size(2);
  launch(stream, grid_of_rows(args.x.rows(), heads * args.cos.size(1)), rope_kernel,
         matrix<float>(args.x), heads, head_dim, matrix<const float>(args.cos),
         matrix<const float>(args.sin), args.pairs);
}

}  // namespace pecia::kernels::cuda
