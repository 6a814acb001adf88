// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/shared/launch.cuh"
#include "kernels/cuda/shared/matrix.hpp"
#include "kernels/cuda/shared/warp.cuh"

namespace pecia::kernels::cuda {
namespace {

constexpr int heads_per_block = 8;

/// A warp sums one head of one row. Grid: (rows, heads / heads_per_block, rounded up).
__global__ void square_sums_kernel(const float* x, int64_t heads, int64_t head_dim,
                                   Matrix<float> sums) {
  const int64_t row = blockIdx.x;
  const int64_t head = int64_t{blockIdx.y} * heads_per_block + threadIdx.x / warp_size;
  if (head >= heads) return;  // a whole warp
  const int lane = threadIdx.x % warp_size;
  const float* const values = x + (row * heads + head) * head_dim;
  float squares = 0;
  for (int64_t i = lane; i < head_dim; i += warp_size) squares += values[i] * values[i];
  squares = warp_sum(squares);
  if (lane == 0) sums.row(row)[head] = squares;
}

}  // namespace

void square_sums(const SquareSumsArgs& args, Context&, device::Stream& stream) {
  const int64_t heads = args.x.size(1);
  launch(stream,
         {.x = args.x.rows(),
          .y = (heads + heads_per_block - 1) / heads_per_block,
          .threads = heads_per_block * warp_size},
         square_sums_kernel, args.x.as<const float>(), heads, args.x.size(2),
         matrix<float>(args.sums));
}

}  // namespace pecia::kernels::cuda
