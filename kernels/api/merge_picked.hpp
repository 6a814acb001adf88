// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <span>

#include "lib/base/core/tensor_view.hpp"

namespace pecia::kernels {

/// Partial attention outputs of some heads of some rows. Part p belongs to row rows[p].
struct PickedParts {
  TensorView out;          ///< [parts, heads, head_dim] fp32 or bf16, dense
  TensorView lse;          ///< [parts, heads] fp32, dense
  TensorView rows;         ///< [parts] int32, distinct; where the tensors are
  int64_t first_head = 0;  ///< of the rows' heads
};

/// Merges the parts into the heads of their rows, as MergeArgs says. No row's head is in two parts.
struct MergePickedArgs {
  std::span<const PickedParts> parts;  ///< of one type
  TensorView out;                      ///< [rows, heads, head_dim] fp32, dense, read and written
  TensorView lse;                      ///< [rows, heads] fp32, dense, read and written
};

}  // namespace pecia::kernels
