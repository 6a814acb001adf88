// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention/attention_wgmma.hpp"
#include "kernels/cuda/attention/attention_wgmma_kernel.cuh"
#include "kernels/cuda/shared/launch.cuh"

namespace pecia::kernels::cuda {
namespace {

template <typename T, int Columns>
void launch_wgmma(const AttentionParams& params, int64_t num_tiles, device::Stream& stream) {
  using Block = WgmmaBlock<T, Columns>;
  static_assert(Block::rows == wgmma_tile_rows);
  launch_early(stream,
               {.x = num_tiles,
                .y = params.num_kv_heads,
                .threads = Block::threads,
                .shared_bytes = Block::shared_bytes},
               attention_wgmma_kernel<T, Columns>, params);
}

/// wgmma_attends takes no other sizes.
template <typename T>
void launch_of_width(const AttentionParams& params, int64_t num_tiles, device::Stream& stream) {
  if (params.head_dim == 64) return launch_wgmma<T, 64>(params, num_tiles, stream);
  if (params.head_dim <= 96) return launch_wgmma<T, 96>(params, num_tiles, stream);
  if (params.head_dim == 128) return launch_wgmma<T, 128>(params, num_tiles, stream);
  if constexpr (!std::is_same_v<T, Fp8>) launch_wgmma<T, 256>(params, num_tiles, stream);
}

}  // namespace

void attend_by_wgmma(const AttentionParams& params, int64_t num_tiles, DType keys,
                     device::Stream& stream) {
  if (keys == DType::bf16)
    launch_of_width<Bf16>(params, num_tiles, stream);
  else if (keys == DType::fp16)
    launch_of_width<Fp16>(params, num_tiles, stream);
  else
    launch_of_width<Fp8>(params, num_tiles, stream);
}

}  // namespace pecia::kernels::cuda
