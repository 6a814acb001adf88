// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Attention by the products of compute capability 9.0 (wgmma), which a build may lack.

#include <string>

#include "kernels/cuda/attention/attention_tiles.hpp"
#include "lib/base/core/dtype.hpp"
#include "lib/base/device/device.hpp"

namespace pecia::kernels::cuda {

/// Packed rows of a query tile.
inline constexpr int64_t wgmma_tile_rows = 128;
/// An item of fewer packed rows leaves half of a tile empty.
inline constexpr int64_t least_wgmma_rows = 128;
inline constexpr const char* wgmma_switch = "PECIA_CUDA_WGMMA";

/// Tells whether there is a kernel for heads of this size: 64, 80, 96, 128, and of keys with 16 bits
/// 256.
inline bool wgmma_attends(DType keys, int64_t head_dim) {
  if (keys == DType::fp32) return false;
  return head_dim == 64 || head_dim == 80 || head_dim == 96 || head_dim == 128 ||
         (head_dim == 256 && keys != DType::fp8);
}

/// Attends `num_tiles` query tiles of up to wgmma_tile_rows packed rows each. params.q, params.out and
/// keys are aligned to 16 bytes, and params.scale is positive. Enqueued on the stream.
using AttendByWgmma = void (*)(const AttentionParams& params, int64_t num_tiles, DType keys,
                               device::Stream& stream);

struct FoundWgmmaAttention {
  AttendByWgmma attend = nullptr;  ///< null: the kernels of all GPUs do it
  std::string why_not = {};
  int64_t least_rows = least_wgmma_rows;  ///< a test takes fewer
  bool is_checked_at_start = true;        ///< by check_wgmma_attention; tests compare it themselves
};

void attend_by_wgmma(const AttentionParams& params, int64_t num_tiles, DType keys,
                     device::Stream& stream);

/// There is none where the build or the GPU has no such products, or wgmma_switch is 0.
FoundWgmmaAttention find_wgmma_attention(device::Device& device);

}  // namespace pecia::kernels::cuda
