// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How the kernels of elementwise_kernels.cuh are spread over a device.

#include <algorithm>

#include "kernels/cuda/launch.cuh"

namespace pecia::kernels::cuda {

/// A block per row and piece of a row; a thread takes up to four of a piece's `items`.
inline Grid grid_of_rows(int64_t rows, int64_t items) {
  const int64_t threads = std::clamp<int64_t>((items + 31) / 32 * 32, 32, 256);
  const int64_t pieces = (items + 4 * threads - 1) / (4 * threads);
  return {rows, std::min(pieces, max_grid_y), static_cast<int>(threads)};
}

}  // namespace pecia::kernels::cuda
