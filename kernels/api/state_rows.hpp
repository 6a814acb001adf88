// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>

namespace pecia::kernels {

/// Rows of one sequence, in their order, and its memory in the ops of recurrent layers: a tail of the
/// convolution, or the matrices of the recurrence.
struct StateRows {
  int64_t first_row;
  int64_t num_rows;
  int64_t state;  ///< index of its tail or matrices; no two items of a call have the same
};

}  // namespace pecia::kernels
