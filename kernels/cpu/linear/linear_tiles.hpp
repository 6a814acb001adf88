// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Decides how `linear` is cut into tasks and what y begins with, for products of either type.

#include "kernels/api/linear.hpp"

namespace pecia::kernels::cpu {

/// Rows × columns of y that one task computes.
struct LinearTile {
  int64_t rows, columns;
};

/// Returns a tile of at most `most`. It is as large as it can be while every thread gets some
/// tasks, because a task packs its weights anew. It has no fewer columns than a panel.
LinearTile choose_tile(int64_t rows, int64_t out, int num_threads, LinearTile most, int64_t panel);

/// Returns the columns of a task that multiplies few rows, in whole units. `depth` is the depth of
/// the sums.
int64_t columns_of_few(int64_t out, int64_t depth, int num_threads, int64_t unit);

/// Returns the elements from row to row, at least `depth`, for rows that a tile reads side by side.
/// They are no multiple of 4 KiB apart, because such rows share the few places of one set of the
/// first cache.
int64_t stride_of_tiles(int64_t depth, int64_t element_bytes);
/// Tells whether rows with this stride share a set, and are worth a copy.
bool share_a_set(int64_t stride, int64_t element_bytes);

/// Writes the bias of columns [column, column + num_columns) into rows of c, or adds it if `adds`.
void begin_with_bias(const TensorView& bias, int64_t column, int64_t num_rows, int64_t num_columns,
                     float* c, int64_t c_stride, bool adds);

}  // namespace pecia::kernels::cpu
