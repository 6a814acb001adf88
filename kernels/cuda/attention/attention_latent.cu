// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention/attention_latent.hpp"
#include "kernels/cuda/attention/attention_latent_kernel.cuh"
#include "kernels/cuda/shared/elementwise.cuh"
#include "kernels/cuda/shared/launch.cuh"

namespace pecia::kernels::cuda {
namespace {

template <typename T, int KeyDim, int ValueDim, int WarpsM, int WarpsN>
void run(const AttentionParams& params, int64_t num_tiles, device::Stream& stream) {
  using Block = LatentBlock<T, KeyDim, ValueDim, WarpsM, WarpsN>;
  launch_early(stream,
               {.x = num_tiles,
                .y = params.num_kv_heads,
                .threads = Block::threads,
                .shared_bytes = Block::shared_bytes},
               attention_latent_kernel<T, KeyDim, ValueDim, WarpsM, WarpsN>, params);
}

template <typename T, int KeyDim, int ValueDim>
void run(const AttentionParams& params, int64_t tile_rows, int64_t num_tiles,
         device::Stream& stream) {
  if (tile_rows == wide_latent_rows)
    run<T, KeyDim, ValueDim, 4, 2>(params, num_tiles, stream);
  else
    run<T, KeyDim, ValueDim, 1, 4>(params, num_tiles, stream);
}

}  // namespace

bool has_room_for_wide_latents(int64_t shared_bytes) {
  return shared_bytes == 0 || LatentBlock<Bf16, 576, 512, 4, 2>::shared_bytes <= shared_bytes;
}

void attend_latents(const AttentionParams& params, int64_t tile_rows, int64_t num_tiles, DType keys,
                    device::Stream& stream) {
  with_kv_type(keys, [&](auto type) {
    using T = decltype(type);
    if constexpr (!std::is_same_v<T, float>) {
      if (params.head_dim == 576)
        run<T, 576, 512>(params, tile_rows, num_tiles, stream);
      else
        run<T, 320, 256>(params, tile_rows, num_tiles, stream);
    }
  });
}

}  // namespace pecia::kernels::cuda
