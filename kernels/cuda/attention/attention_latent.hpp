// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Attention on tensor cores to keys whose beginnings are the values (latent attention, absorbed).

#include "kernels/cuda/attention/attention_tiles.hpp"
#include "lib/base/core/dtype.hpp"
#include "lib/base/device/device.hpp"

namespace pecia::kernels::cuda {

/// Packed rows of the kernel's two shapes.
inline constexpr int64_t wide_latent_rows = 64, narrow_latent_rows = 16;

/// Tells whether there is a kernel: for keys of 16 bits and of fp8 with 576 numbers whose first 512
/// are the value, or 320 and 256.
inline bool has_latent_kernel(DType keys, int64_t key_dim, int64_t value_dim) {
  return keys != DType::fp32 &&
         ((key_dim == 576 && value_dim == 512) || (key_dim == 320 && value_dim == 256));
}

/// Tells whether a block of the wide shape has room: 160 KiB of shared memory, 99 KiB for the narrow
/// one. `shared_bytes`: of the device; 0 if it has no limit.
bool has_room_for_wide_latents(int64_t shared_bytes);

/// Attends `num_tiles` query tiles of `tile_rows` packed rows, one of the two shapes. Keys are aligned
/// to 16 bytes. Enqueued on the stream.
void attend_latents(const AttentionParams& params, int64_t tile_rows, int64_t num_tiles, DType keys,
                    device::Stream& stream);

}  // namespace pecia::kernels::cuda
