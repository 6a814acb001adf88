#pragma once
#include <cstdint>
#include <span>

#include "lib/core/tensor_view.hpp"

namespace pecia::kernels {

/// Writes the rows' keys or values into their cache slots, rounded to the cache's dtype:
///
///     cache[h, slots[t], :] = x[t, h, :]
///
/// One call for K and one for V.
struct KvStoreArgs {
  TensorView x;                    ///< [rows, num_kv_heads, head_dim] fp32, dense
  std::span<const int64_t> slots;  ///< [rows], distinct, each in [0, capacity)
  TensorView
      cache;  ///< [num_kv_heads, capacity, head_dim], fp32, bf16 or fp16; axis 0 may be strided
};

}  // namespace pecia::kernels
