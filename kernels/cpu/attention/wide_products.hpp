// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The two products of attention in fp32. They multiply one tile's rows (queries × heads of a group)
/// with a block of keys and with a block of values. They use scratch memory of the tile's thread.

#include "kernels/cpu/attention/softmax.hpp"
#include "kernels/cpu/shared/workspace.hpp"
#include "lib/base/core/dtype.hpp"

namespace pecia::kernels::cpu {

struct TileRows {
  int64_t first, count;
};

struct TileShape {
  int64_t rows, head_dim, value_dim;
  int64_t most_rows;  ///< most rows of one TileRows
  DType kv_dtype;
  bool row_invariant;  ///< a row's bits do not depend on the other rows

  int64_t row_bytes() const { return head_dim * size_of(kv_dtype); }
};

/// Keys and values are widened.
class WideProducts {
 public:
  static int64_t scratch_bytes(const TileShape& shape);
  WideProducts(const TileShape& shape, Carver& scratch);

  /// Rows [first, first + count) of the queries become factor · from. `from` is dense and fp32. All
  /// rows have the same factor.
  void set_queries(const void* from, DType dtype, float factor, int64_t first, int64_t count);
  /// Sets the block that the rows meet from now on. It must stay where it is. `bytes_to_next`: from
  /// it to the block that is read next, as far as that is known.
  void set_block(const char* k, const char* v, int64_t num_keys, int64_t bytes_to_next);
  /// scores[r, j] = Σ_i q[r, i] · k[j, i] for some rows and the first keys of the block. The rows of
  /// scores are block_keys apart.
  void multiply_keys(TileRows rows, int64_t num_keys, float* scores);
  /// Does softmax_block. Then state.out[r, i] += Σ_j exp(score − maximum) · v_scales[j] · v[j, i].
  /// The scales are 1 if v_scales is null.
  void add_values(const ScoreBlock& scores, const OnlineRows& state, const float* v_scales);

 private:
  bool reads_in_place() const;

  TileShape shape_;
  const char* k_ = nullptr;
  float* q_;         ///< [rows, head_dim]
  float* packed_k_;  ///< [padded_columns(block_keys) · head_dim]
  float* wide_v_;    ///< [block_keys, padded_columns(value_dim)]
};

}  // namespace pecia::kernels::cpu
