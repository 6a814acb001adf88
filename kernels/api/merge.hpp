// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <span>

#include "lib/base/core/tensor_view.hpp"

namespace pecia::kernels {

/// Merges a partial attention output into another one of the same queries, seen over other keys
/// (Context Parallelism for Scalable Million-Token Inference, §3.4). With r = rows[p] (p itself if
/// `rows` is empty) and m = max(lse[r], part_lse[p]):
///
///     out[r] = (out[r]·a + part_out[p]·b) / (a + b)     a = exp(lse[r] − m)
///     lse[r] = m + log(a + b)                           b = exp(part_lse[p] − m)
///
/// An empty part (lse = −inf, out = 0) changes no bit of the other, on either side. Two empty parts
/// give an empty part, never NaN.
struct MergeArgs {
  TensorView part_out;            ///< [parts, heads, head_dim] fp32 or bf16, dense
  TensorView part_lse;            ///< [parts, heads] fp32, dense
  std::span<const int64_t> rows;  ///< [parts], distinct, or empty
  TensorView out;                 ///< [rows, heads, head_dim] fp32, dense, read and written
  TensorView lse;                 ///< [rows, heads] fp32, dense, read and written
};

}  // namespace pecia::kernels
