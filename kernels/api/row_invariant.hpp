// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace pecia::kernels {

/// What an op's order of additions may depend on. Both give the same bits on any number of threads.
enum class RowInvariant {
  no,   ///< whatever is fastest for the number of rows of the call
  yes,  ///< a row's bits depend on the row alone: not on other rows, nor on their number
};

}  // namespace pecia::kernels
