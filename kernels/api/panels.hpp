// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "lib/base/core/tensor_view.hpp"

namespace pecia::kernels {

/// A second copy of a matrix of weights, in the order in which a backend reads it fastest
/// (Backend::panel_bytes). Panels are whole groups of the matrix's rows. So several ranks can share
/// one copy, and each of them can make a part of it.
///
/// Rows [begin, end) of the matrix are written to their place in `panels`. Both are multiples of
/// panel_rows, or `end` is the last row.
struct PanelsArgs {
  static constexpr int64_t panel_rows = 32;

  TensorView matrix;  ///< [out, in] bf16; rows may be strided
  void* panels;       ///< of the whole matrix, begins at a multiple of 64 bytes
  int64_t begin, end;
};

}  // namespace pecia::kernels
