// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "lib/base/core/tensor_view.hpp"

namespace pecia::kernels {

/// Which two elements of a head turn together. r is rotary_dim.
enum class RopePairs {
  halves,      ///< (i, i + r/2), for Llama, Mistral, Qwen, InternLM2
  interleaved  ///< (2i, 2i + 1), for GLM-4
};

/// Applies the rotary position embedding to rotary_dim = 2 · cos.size(1) elements of each head, from
/// element `first` on. The other elements stay as they are.
///
///     (a, b) → (a·cos[t,i] − b·sin[t,i],  b·cos[t,i] + a·sin[t,i])      i = 0 … rotary_dim/2 − 1
///
/// With a scale, all elements of row t's heads are then multiplied by scale[t].
/// `rope_tables` makes the tables once per pass from the rows' global positions.
struct RopeArgs {
  TensorView x;         ///< [rows, heads, head_dim] fp32, dense
  TensorView cos, sin;  ///< [rows, rotary_dim/2] fp32
  RopePairs pairs;
  TensorView out;  ///< like x, and may be x; fp32 or Backend::operand_type, rounded once
  int64_t first = 0;
  TensorView scale = {};  ///< [rows] fp32, or absent
};

}  // namespace pecia::kernels
