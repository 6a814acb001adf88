// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A projection as views of stored matrices.

#include <cstdint>
#include <vector>

#include "lib/core/tensor_view.hpp"

namespace pecia::model {

/// A projection [out, in] as one or more blocks.
struct LinearWeight {
  struct Part {
    TensorView weight;       ///< a block of the matrix, rows possibly strided
    TensorView bias;         ///< of its rows, or absent
    TensorView scales = {};  ///< of its rows, fp32, where it is codes (codes.hpp); else absent
  };
  /// How the blocks make up the matrix.
  enum class Blocks : uint8_t {
    rows,  ///< outputs side by side: InternLM2's wqkv has one block per KV head, GLM's gate_up two
    columns  ///< inputs side by side, the products added: a matrix gathered from ranks that hold
             ///< columns of it. A bias stands with the first block.
  };

  std::vector<Part> parts;
  Blocks blocks = Blocks::rows;

  int64_t in() const;  ///< elements of a row: of int4, groups
  int64_t out() const;
  int64_t bytes() const;  ///< of weights, scales and biases
};

/// Rows [begin, begin + count) of a weight in blocks of rows, with their biases and scales: a view.
LinearWeight slice_rows(const LinearWeight& weight, int64_t begin, int64_t count);

/// Columns [begin, begin + count) of every block of rows, without a bias: a view. A row's scale is
/// that of the whole row. Not of int4.
LinearWeight slice_columns(const LinearWeight& weight, int64_t begin, int64_t count);

}  // namespace pecia::model
