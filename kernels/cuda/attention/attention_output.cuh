// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/cuda/attention/attention_tiles.hpp"
#include "kernels/cuda/shared/instructions.cuh"

namespace pecia::kernels::cuda {

/// Where a packed row's results go: out and lse, or the block's partials, which are fp32.
struct OutputRow {
  void* out;
  float* lse;
  OutType type;

  __device__ __forceinline__ void put(int64_t column, float value) const {
    if (type == OutType::fp32)
      static_cast<float*>(out)[column] = value;
    else if (type == OutType::bf16)
      static_cast<Bf16*>(out)[column] = rounded_to<Bf16>(value);
    else
      static_cast<Fp16*>(out)[column] = rounded_to<Fp16>(value);
  }
};

/// The row of out and lse that belongs to head `head` of row `row`.
__device__ __forceinline__ OutputRow whole_row(const AttentionParams& params, int64_t row,
                                               int64_t head) {
  const int64_t index = row * params.num_heads + head;
  const int64_t element_bytes = params.out_type == OutType::fp32 ? 4 : 2;
  return {static_cast<char*>(params.out) + index * params.value_dim * element_bytes,
          params.lse + index, params.out_type};
}

__device__ __forceinline__ OutputRow output_row(const AttentionParams& params,
                                                const QueryTile& tile, int kv_head, int index,
                                                int tile_rows) {
  if (tile.partial >= 0) {
    const int64_t row = (tile.partial * params.num_kv_heads + kv_head) * tile_rows + index;
    return {params.partial_out + row * params.value_dim, params.partial_lse + row, OutType::fp32};
  }
  const PackedRow row = unpack(tile, kv_head, params.num_heads / params.num_kv_heads, index);
  return whole_row(params, row.row, row.head);
}

}  // namespace pecia::kernels::cuda
