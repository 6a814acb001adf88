// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/cuda/shared/vectors.cuh"
#include "kernels/cuda/shared/warp.cuh"

namespace pecia::kernels::cuda {

/// to[head, key, :] = code · scale, rounded to bf16, for `num_keys` keys of each head. Key s of head
/// g begins at element first + g · head_stride + s · head_dim of `codes`, and the index of its scale
/// is that divided by head_dim, a multiple of 8. A warp takes a vector, of `vectors` in all.
/// Grid x: vectors / warps of the block, rounded up.
static __global__ void widen_keys_kernel(const Fp8* codes, const float* scales, int64_t first,
                                         int64_t head_stride, int64_t num_keys, int64_t vectors,
                                         int64_t head_dim, Bf16* to) {
  constexpr int count = 4;
  const int lane = threadIdx.x % warp_size;
  const int64_t vector = int64_t{blockIdx.x} * (blockDim.x / warp_size) + threadIdx.x / warp_size;
  if (vector >= vectors) return;
  const int64_t begin = first + vector / num_keys * head_stride + vector % num_keys * head_dim;
  const float scale = scales[begin / head_dim];
  for (int64_t i = count * lane; i < head_dim; i += count * warp_size) {
    float values[count];
    load<count>(codes + begin + i, values);
#pragma unroll
    for (int j = 0; j < count; ++j) values[j] *= scale;
    store<count>(values, to + vector * head_dim + i);
  }
}

}  // namespace pecia::kernels::cuda
