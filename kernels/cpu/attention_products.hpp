// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The two products of attention, of one tile's rows (queries × heads of a group) with a block of
/// keys and values, from scratch memory of the tile's thread.

#include "kernels/cpu/softmax.hpp"
#include "kernels/cpu/workspace.hpp"
#include "lib/core/dtype.hpp"

namespace pecia::kernels::cpu {

struct RowRange {
  int64_t first, count;
};

struct TileShape {
  int64_t rows, head_dim;
  int64_t most_rows;  ///< of one RowRange
  DType kv_dtype;
  bool row_invariant;  ///< a row's bits are the same whatever the other rows

  int64_t row_bytes() const { return head_dim * size_of(kv_dtype); }
};

/// Of fp32, keys and values widened.
class WideProducts {
 public:
  static int64_t scratch_bytes(const TileShape& shape);
  WideProducts(const TileShape& shape, Carver& scratch);

  /// Rows [first, first + count) of the queries become factor · from, which is dense; the factor is
  /// that of all rows.
  void set_queries(const float* from, float factor, int64_t first, int64_t count);
  /// The block that the rows meet from now on, as long as it lies there.
  void set_block(const char* k, const char* v, int64_t num_keys);
  /// scores[r, j] = Σ_i q[r, i] · k[j, i] for some rows, those of scores block_keys apart.
  void multiply_keys(RowRange rows, float* scores);
  /// softmax_block, and state.out[r, i] += Σ_j exp(score − maximum) · v_scales[j] · v[j, i];
  /// without v_scales (null) they are 1.
  void add_values(const ScoreBlock& scores, const OnlineRows& state, const float* v_scales);

 private:
  bool reads_in_place() const;

  TileShape shape_;
  const char* k_ = nullptr;
  int64_t num_keys_ = 0;
  float* q_;         ///< [rows, head_dim]
  float* packed_k_;  ///< [padded_columns(block_keys) · head_dim]
  float* wide_v_;    ///< [block_keys, padded_columns(head_dim)]
};

/// The same of bf16, in which keys and values are: queries and weights are rounded. Requires
/// has_native_bf16().
class Bf16Products {
 public:
  static int64_t scratch_bytes(const TileShape& shape);
  Bf16Products(const TileShape& shape, Carver& scratch);

  void set_queries(const float* from, float factor, int64_t first, int64_t count);
  void set_block(const char* k, const char* v, int64_t num_keys);
  void multiply_keys(RowRange rows, float* scores);
  void add_values(const ScoreBlock& scores, const OnlineRows& state, const float* v_scales);

 private:
  bool reads_in_place() const;

  TileShape shape_;
  const uint16_t* k_ = nullptr;
  const uint16_t* v_ = nullptr;
  int64_t num_keys_ = 0;
  float factor_ = 1;    ///< of the scores, so that queries are rounded as they are
  int64_t q_stride_;    ///< head_dim rounded up to even
  uint16_t* q_;         ///< [rows, q_stride], padded with 0
  uint16_t* weights_;   ///< [most_rows, block_keys]
  uint16_t* packed_k_;  ///< in panels of keys
  uint16_t* packed_v_;  ///< in panels of elements
};

}  // namespace pecia::kernels::cpu
