// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <span>

#include "lib/base/core/tensor_view.hpp"

namespace pecia::kernels {

/// Rows of a tensor by a list that is where the tensors are. Row i of `to` becomes row rows[i] of
/// `from`, or row i where there is no list.
struct PickedRows {
  TensorView from;  ///< [any, width] of any type; rows may be strided
  TensorView rows;  ///< [count] int32, each a row of `from`; or absent
  TensorView to;    ///< [count, width] of the same type, or cast as CastArgs says; may be strided
};

/// Gathers rows of several tensors at once. What is written is not read, nor written twice. Zero
/// rows do nothing.
struct PickRowsArgs {
  std::span<const PickedRows> picks;
};

}  // namespace pecia::kernels
