// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How linear is cut into tasks, and what y begins with: for products of either type.

#include "kernels/api/linear.hpp"

namespace pecia::kernels::cpu {

/// Rows × columns of y that one task computes.
struct LinearTile {
  int64_t rows, columns;
};

/// Up to `most`, as large as leaves every thread some tasks, with no fewer columns than a panel
/// has: a task packs its weights anew.
LinearTile choose_tile(int64_t rows, int64_t out, int num_threads, LinearTile most, int64_t panel);

/// Columns of a task that multiplies few rows, in whole units; `depth` is that of the sums.
int64_t columns_of_few(int64_t out, int64_t depth, int num_threads, int64_t unit);

/// Elements from row to row, at least `depth`, for rows that a tile reads side by side: rows that
/// lie a multiple of 4 KiB apart share the few places of one set of the first cache.
int64_t stride_of_tiles(int64_t depth, int64_t element_bytes);
/// Whether rows that lie so far apart are worth a copy.
bool share_a_set(int64_t stride, int64_t element_bytes);

/// Writes the bias of columns [column, column + num_columns) into rows of c, adds it where `adds`.
void begin_with_bias(const TensorView& bias, int64_t column, int64_t num_rows, int64_t num_columns,
                     float* c, int64_t c_stride, bool adds);

}  // namespace pecia::kernels::cpu
