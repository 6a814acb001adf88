// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <span>

#include "lib/core/tensor_view.hpp"

namespace pecia::kernels {

/// out[t, :] = table[tokens[t] − first_token, :], widened to fp32; for a token that is not in the
/// table, which may be a part of a vocabulary, −0: added to anything, it changes no bit.
struct EmbeddingArgs {
  TensorView table;                 ///< [tokens of the table, hidden], fp32, bf16 or fp16
  std::span<const int32_t> tokens;  ///< [rows]
  TensorView out;                   ///< [rows, hidden] fp32, written
  int64_t first_token = 0;          ///< of the table's first row

  /// Row of the table for row t; −1: none.
  int64_t table_row(int64_t t) const {
    const int64_t row = tokens[t] - first_token;
    return row >= 0 && row < table.rows() ? row : -1;
  }
};

}  // namespace pecia::kernels
