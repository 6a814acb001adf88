// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <span>

#include "lib/core/tensor_view.hpp"

namespace pecia::kernels {

/// Writes the rows' keys or values into their cache slots, rounded to the cache's dtype:
///
///     cache[h, slots[t], :] = x[t, h, :]
///
/// in fp8 with a scale (lib/core/fp8_vector.hpp) for each row and head:
///
///     scales[h, slots[t]]   = fp8_scale(max_i |x[t, h, i]|)
///     cache[h, slots[t], :] = x[t, h, :] / scales[h, slots[t]]
///
/// A scale of each head for all rows would have to be guessed, or would depend on the rows that
/// came before: so a stored row depends on itself alone.
///
/// One call for K and one for V.
struct KvStoreArgs {
  TensorView x;                    ///< [rows, num_kv_heads, head_dim] fp32, dense
  std::span<const int64_t> slots;  ///< [rows], distinct, each in [0, capacity)
  TensorView cache;  ///< [num_kv_heads, capacity, head_dim], fp32, bf16, fp16 or fp8; axis 0 may
                     ///< be strided
  TensorView scales = {};  ///< of an fp8 cache, else absent: [num_kv_heads, capacity] fp32;
                           ///< axis 0 may be strided
};

}  // namespace pecia::kernels
