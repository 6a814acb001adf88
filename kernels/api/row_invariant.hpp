// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace pecia::kernels {

/// What an op's order of additions may follow. Both give the same bits on any number of threads.
enum class RowInvariant {
  no,   ///< whatever is fastest for the number of rows of the call
  yes,  ///< a row's bits follow from the row alone: neither from the rows beside it nor their
        ///< number
};

}  // namespace pecia::kernels
