// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/shared/launch.cuh"
#include "kernels/cuda/shared/matrix.hpp"
#include "kernels/cuda/shared/warp.cuh"

namespace pecia::kernels::cuda {
namespace {

constexpr int rows_per_block = 4;

/// A number that is larger where the logit is, and where equal logits come earlier. NaN is the
/// smallest logit; both zeros are equal. 0 is below all.
__device__ __forceinline__ uint64_t rank_of(float logit, int64_t expert) {
  const uint32_t bits = bits_of_float(logit + 0.0f);
  const uint32_t ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  const uint32_t place = logit == logit ? ordered : 0;
  return uint64_t{place} << 32 | (0xffffffffu - static_cast<uint32_t>(expert));
}

/// A warp chooses for one row: k times the best one that comes after the one before.
__global__ void route_kernel(Matrix<const float> logits, Matrix<int32_t> chosen,
                             Matrix<float> weights, Routing routing) {
  wait_for_earlier_kernels();
  let_next_kernel_begin();
  const int lane = threadIdx.x % warp_size;
  const int64_t row = int64_t{blockIdx.x} * rows_per_block + threadIdx.x / warp_size;
  if (row >= logits.rows) return;  // a whole warp
  const float* const of = logits.row(row);
  int32_t* const best = chosen.row(row);
  const int64_t k = chosen.columns;
  uint64_t before = ~uint64_t{0};
  for (int64_t taken = 0; taken < k; ++taken) {
    uint64_t next = 0;
    for (int64_t e = lane; e < logits.columns; e += warp_size)
      if (const uint64_t rank = rank_of(of[e], e); rank < before && rank > next) next = rank;
#pragma unroll
    for (int offset = warp_size / 2; offset > 0; offset /= 2) {
      const uint64_t other = __shfl_xor_sync(all_lanes, next, offset);
      if (other > next) next = other;
    }
    before = next;
    if (lane == 0) best[taken] = static_cast<int32_t>(0xffffffffu - static_cast<uint32_t>(next));
  }
  __syncwarp();  // all lanes read what the first has written
  int broken = 0;
  float most = of[0];
  for (int64_t e = lane; e < logits.columns; e += warp_size) {
    broken += of[e] != of[e];
    most = fmaxf(most, of[e]);
  }
  broken = warp_sum(broken);
  most = warp_max(most);
  double sum = 0;
  const int64_t terms = routing == Routing::of_all ? logits.columns : k;
  for (int64_t i = lane; i < terms; i += warp_size)
    sum += expf(of[routing == Routing::of_all ? i : best[i]] - most);
  sum = warp_sum(sum);
  for (int64_t j = lane; j < k; j += warp_size)
    weights.row(row)[j] =
        broken > 0 ? nanf("") : static_cast<float>(expf(of[best[j]] - most) / sum);
}

}  // namespace

void route(const RouteArgs& args, Context&, device::Stream& stream) {
  const int64_t rows = args.logits.rows();
  launch_early(
      stream,
      {.x = (rows + rows_per_block - 1) / rows_per_block, .threads = rows_per_block * warp_size},
      route_kernel, matrix<const float>(args.logits), matrix<int32_t>(args.chosen),
      matrix<float>(args.weights), args.routing);
}

}  // namespace pecia::kernels::cuda
