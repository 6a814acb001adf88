// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A linear projection as views of stored matrices.

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <vector>

#include "lib/base/core/tensor_view.hpp"

namespace pecia::model {

/// A projection [out, in] that consists of one or more blocks.
struct LinearWeight {
  struct Part {
    TensorView weight;       ///< a block of the matrix; its rows may be strided
    TensorView bias;         ///< bias of the block's rows, or absent
    TensorView scales = {};  ///< scales of the block's rows if the weight is codes (codes.hpp)
    float factor = 1;        ///< of the matrix if the weight is nvfp4

    /// A view of columns [begin, begin + count), which begin and end with groups or blocks of codes,
    /// without the bias. Scales of whole rows stay.
    Part columns(int64_t begin, int64_t count) const;
    int64_t in() const;  ///< numbers in a row; of codes in groups or blocks, those of whole ones
    int64_t bytes() const;
  };
  /// How the blocks form the matrix.
  enum class Blocks : uint8_t {
    rows,    ///< outputs side by side: InternLM2 has one block per KV head, GLM's gate_up two
    columns  ///< inputs side by side, products added: gathered from several ranks;
             ///< the first block has the bias
  };

  std::vector<Part> parts;
  Blocks blocks = Blocks::rows;

  int64_t in() const;  ///< numbers in a row
  int64_t out() const;
  int64_t bytes() const;  ///< sum over weights, scales and biases
};

/// A view of rows [begin, begin + count), with their biases and scales. The weight must consist of
/// blocks of rows.
LinearWeight slice_rows(const LinearWeight& weight, int64_t begin, int64_t count);

/// Calls visit(matrices, first head, heads) for each block of a weight that has a matrix of `rows` rows
/// for each head: the matrices of the block's heads, one after the other.
template <typename Visit>
void for_each_matrix_of_heads(const LinearWeight& weight, int64_t rows, const Visit& visit) {
  int64_t head = 0;
  for (const LinearWeight::Part& part : weight.parts) {
    const int64_t heads = part.weight.rows() / rows;
    PECIA_CHECK(heads * rows == part.weight.rows(), "matrices of {} rows in {}", rows,
                part.weight.rows());
    visit(part.weight, head, heads);
    head += heads;
  }
}

/// Several projections as one, whose outputs follow each other. Absent unless each is one dense
/// matrix of the same type, depth and factor, and each begins where the one before ends, as do their
/// biases and their scales if they have them.
std::optional<LinearWeight> joined(std::initializer_list<const LinearWeight*> projections);

/// A view of columns [begin, begin + count) of every block, as Part::columns gives them. The weight
/// must consist of blocks of rows.
LinearWeight slice_columns(const LinearWeight& weight, int64_t begin, int64_t count);

}  // namespace pecia::model
