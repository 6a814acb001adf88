// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/cuda/attention/attention_tiles.hpp"
#include "kernels/cuda/shared/instructions.cuh"

namespace pecia::kernels::cuda {

/// Where a packed row's results go: out and lse, or the block's partials.
struct OutputRow {
  float *out, *lse;
};
__device__ __forceinline__ OutputRow output_row(const AttentionParams& params,
                                                const QueryTile& tile, int kv_head, int index,
                                                int tile_rows) {
  if (tile.partial >= 0) {
    const int64_t row = (tile.partial * params.num_kv_heads + kv_head) * tile_rows + index;
    return {params.partial_out + row * params.head_dim, params.partial_lse + row};
  }
  const PackedRow row = unpack(tile, kv_head, params.num_heads / params.num_kv_heads, index);
  const int64_t head = row.row * params.num_heads + row.head;
  return {params.out + head * params.head_dim, params.lse + head};
}

}  // namespace pecia::kernels::cuda
