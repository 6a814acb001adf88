// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Decides how the kernels of elementwise_kernels.cuh are spread over a device.

#include <algorithm>

#include "kernels/cuda/shared/launch.cuh"

namespace pecia::kernels::cuda {

/// Returns a grid with a block per row and piece of a row. A thread takes up to four of a piece's
/// `items`.
inline Grid grid_of_rows(int64_t rows, int64_t items) {
  const int64_t threads = std::clamp<int64_t>((items + 31) / 32 * 32, 32, 256);
  const int64_t pieces = (items + 4 * threads - 1) / (4 * threads);
  return {rows, std::min(pieces, max_grid_y), static_cast<int>(threads)};
}

}  // namespace pecia::kernels::cuda
