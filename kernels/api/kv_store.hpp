// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <span>

#include "lib/base/core/tensor_view.hpp"

namespace pecia::kernels {

/// Writes the rows' keys or values into their cache slots, rounded to the cache's dtype:
///
///     cache[h, slots[t], :] = x[t, h, :]
///
/// In fp8 each row and head has a scale (lib/base/core/fp8_vector.hpp):
///
///     scales[h, slots[t]]   = fp8_scale(max_i |x[t, h, i]|)
///     cache[h, slots[t], :] = x[t, h, :] / scales[h, slots[t]]
///
/// A single scale of each head for all rows would have to be guessed, or would depend on the rows
/// that came before. With these scales a stored row depends on itself alone.
///
/// K takes one call, and V takes another.
struct KvStoreArgs {
  TensorView x;                    ///< [rows, num_kv_heads, head_dim] fp32, dense
  std::span<const int64_t> slots;  ///< [rows], distinct, each in [0, capacity)
  /// [num_kv_heads, capacity, head_dim], fp32, bf16, fp16 or fp8. Axis 0 may be strided.
  TensorView cache;
  /// The scales of an fp8 cache, [num_kv_heads, capacity] fp32. Axis 0 may be strided. They are
  /// absent for other types.
  TensorView scales = {};
};

}  // namespace pecia::kernels
