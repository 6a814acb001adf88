// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/products/packed_rows.hpp"

#include "kernels/api/measured_constants.hpp"
#include "kernels/cpu/shared/parallel.hpp"

namespace pecia::kernels::cpu {
namespace {

// The second cache, 2 MiB, also has the sums of a panel and what comes of the next one. Prototypes on
// Granite Rapids: 512 rows of 576, 256 of 2048 and 128 of 4096 were best.
MeasuredConstant block_bytes("linear.packed_bytes", int64_t{1} << 20,
                             {int64_t{1} << 19, int64_t{1} << 21});
constexpr int64_t least_block_rows = 96, most_block_rows = 512;
// Steps of a piece: 20 KiB of a panel.
MeasuredConstant steps_of_piece("linear.packed_steps", 10, {5, 20});

}  // namespace

RowBlocks row_blocks(int64_t rows, int64_t depth) {
  constexpr int64_t unit = RowBlocks::square_rows;
  RowBlocks blocks{rows, depth};
  const int64_t row_bytes = std::max<int64_t>(1, depth) * size_of(DType::bf16);
  blocks.block_rows =
      std::clamp(block_bytes / row_bytes / unit * unit, least_block_rows, most_block_rows);
  blocks.pieces = std::max<int64_t>(1, (blocks.steps() + steps_of_piece - 1) / steps_of_piece);
  return blocks;
}

const uint16_t* PackedRows::of(const TensorView& x, const RowBlocks& blocks, SameX same_x,
                               const device::Stream& stream) {
  const Packed wanted{x.data(), x.dtype(), x.row_stride(), blocks};
  if (same_x == SameX::yes && packed_ == wanted) return buffer_.as<uint16_t>();
  packed_ = {};
  buffer_.reserve(blocks.elements() * size_of(DType::bf16));
  auto* const to = buffer_.as<uint16_t>();
  const int64_t squares_of_block = blocks.block_rows / RowBlocks::square_rows;
  const int64_t squares = (blocks.rows + RowBlocks::square_rows - 1) / RowBlocks::square_rows;
  for_each_range(stream, squares, 1, [&](int64_t begin, int64_t end) {
    for (int64_t each = begin; each < end; ++each) {
      const int64_t block = each / squares_of_block, square = each % squares_of_block;
      for (int64_t piece = 0; piece < blocks.pieces; ++piece)
        pack_square(x, blocks, block, piece, square, to + blocks.at(block, piece, square));
    }
  });
  packed_ = wanted;
  return to;
}

}  // namespace pecia::kernels::cpu
