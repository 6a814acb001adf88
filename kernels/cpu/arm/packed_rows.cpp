// SPDX-License-Identifier: Apache-2.0
/// Kernels of this architecture read rows in place, so only the twin of AMX's tiles takes these.

#include "kernels/cpu/products/packed_rows.hpp"

#include "kernels/cpu/products/bf16_native.hpp"

namespace pecia::kernels::cpu {
namespace {

/// Elements [begin, begin + 32) of a row; zeros where there are none.
void load_elements(const TensorView& x, int64_t row, int64_t begin, uint16_t* to) {
  const int64_t count = std::clamp<int64_t>(x.size(1) - begin, 0, bf16_depth);
  if (x.dtype() == DType::bf16)
    std::copy_n(static_cast<const uint16_t*>(x.row(row)) + begin, count, to);
  else
    store_bf16_native(static_cast<const float*>(x.row(row)) + begin, count, to);
  std::fill(to + count, to + bf16_depth, uint16_t{0});
}

}  // namespace

void pack_square(const TensorView& x, const RowBlocks& blocks, int64_t block, int64_t piece,
                 int64_t square, uint16_t* to) {
  const int64_t first_row = block * blocks.block_rows + square * RowBlocks::square_rows;
  const int64_t first = blocks.first_step(piece), end = first + blocks.steps_of(piece);
  for (int64_t step = first; step < end; ++step)
    for (int64_t r = 0; r < RowBlocks::square_rows; ++r, to += bf16_depth)
      if (first_row + r < blocks.rows)
        load_elements(x, first_row + r, step * bf16_depth, to);
      else
        std::fill_n(to, bf16_depth, uint16_t{0});
}

void write_square(const float* sums, int64_t rows, int64_t columns, float* y, int64_t stride,
                  bool) {
  for (int64_t r = 0; r < rows; ++r)
    std::copy_n(sums + r * RowBlocks::square_rows, columns, y + r * stride);
}

/// Nothing goes past the caches.
void end_of_streamed() {}

}  // namespace pecia::kernels::cpu
