// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <span>

#include "lib/base/core/tensor_view.hpp"

namespace pecia::kernels {

/// out[t, :] = table[tokens[t] − first_token, :] · scale, widened to fp32 before the product. The
/// table may be a part of a vocabulary. For a token that is not in the table, out is −0: added to
/// anything, it changes no bit.
struct EmbeddingArgs {
  TensorView table;                 ///< [tokens of the table, hidden], fp32, bf16 or fp16
  std::span<const int32_t> tokens;  ///< [rows]
  TensorView out;                   ///< [rows, hidden] fp32, written
  int64_t first_token = 0;          ///< token of the table's first row
  float scale = 1;

  /// Returns the row of the table for row t. It is −1 if the table has none.
  int64_t table_row(int64_t t) const {
    const int64_t row = tokens[t] - first_token;
    return row >= 0 && row < table.rows() ? row : -1;
  }
};

}  // namespace pecia::kernels
