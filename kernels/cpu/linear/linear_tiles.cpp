// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/linear/linear_tiles.hpp"

#include "kernels/cpu/products/gemm.hpp"
#include "kernels/cpu/shared/parallel.hpp"

namespace pecia::kernels::cpu {

LinearTile choose_tile(int64_t rows, int64_t out, int num_threads, LinearTile most, int64_t panel) {
  LinearTile tile{std::min(rows, most.rows), most.columns};
  const auto tasks = [&] {
    return ((rows + tile.rows - 1) / tile.rows) * ((out + tile.columns - 1) / tile.columns);
  };
  const auto enough = [&] { return num_threads == 1 || tasks() >= 4 * num_threads; };
  while (!enough() && tile.rows > 512) tile.rows = (tile.rows + 1) / 2;
  while (!enough() && tile.columns > panel) tile.columns /= 2;
  return tile;
}

int64_t columns_of_few(int64_t out, int64_t depth, int num_threads, int64_t unit) {
  const int64_t even_share = (out + 4 * num_threads - 1) / (4 * num_threads);
  const int64_t least = std::max(rows_per_task(depth), even_share);
  return (least + unit - 1) / unit * unit;
}

bool share_a_set(int64_t stride, int64_t element_bytes) {
  return stride * element_bytes % 4096 == 0;
}

int64_t stride_of_tiles(int64_t depth, int64_t element_bytes) {
  const int64_t line = 64 / element_bytes;
  const int64_t stride = (depth + line - 1) / line * line;
  return share_a_set(stride, element_bytes) ? stride + line : stride;
}

void begin_with_bias(const TensorView& bias, int64_t column, int64_t num_rows, int64_t num_columns,
                     float* c, int64_t c_stride, bool adds) {
  constexpr int64_t most = 128;
  const int64_t element_bytes = size_of(bias.dtype());
  for (int64_t done = 0; done < num_columns; done += most) {
    const int64_t width = std::min(most, num_columns - done);
    float wide[most];
    widen_rows(static_cast<const char*>(bias.data()) + (column + done) * element_bytes,
               bias.dtype(), width, 1, width, wide, width);
    for (int64_t r = 0; r < num_rows; ++r) {
      float* const to = c + r * c_stride + done;
      for (int64_t o = 0; o < width; ++o) to[o] = adds ? to[o] + wide[o] : wide[o];
    }
  }
}

}  // namespace pecia::kernels::cpu
