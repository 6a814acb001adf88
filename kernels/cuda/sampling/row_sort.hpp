// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <memory>

#include "lib/base/device/device.hpp"

namespace pecia::kernels::cuda {

/// Sorts each row's values from the greatest to the least, with their columns. Equal values are
/// sorted by column. −0 equals 0. The place of NaN is left open.
class RowSort {
 public:
  virtual ~RowSort() = default;
  /// All arrays are [rows, columns], dense, in device memory. `values` is kept.
  virtual void run(const float* values, int64_t rows, int64_t columns, float* sorted,
                   int32_t* sorted_columns, device::Stream& stream) = 0;
};

/// Makes a RowSort by CUB's segmented radix sort. Scratch memory grows to the greatest size asked
/// for.
std::unique_ptr<RowSort> make_cub_row_sort(device::Device& device);

}  // namespace pecia::kernels::cuda
