// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <span>

#include "kernels/api/attention.hpp"

namespace pecia::kernels {

/// How much of their attention some rows give to each key: what tells important tokens from others
/// (CSPS, communication-efficient sparse attention). With attention's scores and lse of all the
/// keys that the rows see, here or elsewhere:
///
///     sums[h, s] = Σ_t exp(scores[t,h,s] − lse[t,h])      over the rows t that see key s, in order
///
/// 0 where no row does. A row whose lse is −inf sees no key.
struct ColumnSumsArgs {
  TensorView q;                              ///< [rows, num_heads, head_dim] fp32, dense
  TensorView lse;                            ///< [rows, num_heads] fp32, dense
  std::span<const int64_t> query_positions;  ///< [rows]
  KeyRun run;                                ///< of `keys`, whose values are not read
  StoredKeys keys;
  DType kv_dtype;        ///< fp32, bf16, fp16 or fp8
  int64_t num_kv_heads;  ///< divides num_heads
  float scale;
  int64_t window = 0;  ///< 0: none
  TensorView sums;     ///< [num_heads, run.num_keys] fp32, written
};

}  // namespace pecia::kernels
