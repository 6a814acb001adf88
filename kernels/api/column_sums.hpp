// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <span>

#include "kernels/api/attention.hpp"

namespace pecia::kernels {

/// Sums how much of their attention some rows give to each key. The sums tell important tokens from
/// others (CSPS, communication-efficient sparse attention). `scores` and `lse` are attention's, and
/// `lse` is over all keys that the rows see, here or elsewhere:
///
///     sums[g, s] = Σ_h max(0, Σ_t exp(scores[t,h,s] − lse[t,h]))
///
/// over the heads h of KV head g, and over the rows t that see key s, both in order. A head whose sum
/// is NaN counts as 0. The sum is 0 if no row sees the key. A row whose lse is −inf sees no key.
struct ColumnSumsArgs {
  TensorView q;                              ///< [rows, num_heads, head_dim] fp32, dense
  TensorView lse;                            ///< [rows, num_heads] fp32, dense
  std::span<const int64_t> query_positions;  ///< [rows]
  KeyRun run;                                ///< run of `keys`; the values are not read
  StoredKeys keys;
  DType kv_dtype;        ///< fp32, bf16, fp16 or fp8
  int64_t num_kv_heads;  ///< divides num_heads
  float scale;
  Window window = {};
  TensorView sums;  ///< [num_kv_heads, run.num_keys] fp32, written; rows may be strided
};

}  // namespace pecia::kernels
