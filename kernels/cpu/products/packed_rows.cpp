// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/products/packed_rows.hpp"

#include <immintrin.h>

#include "kernels/api/measured_constants.hpp"
#include "kernels/cpu/products/bf16_native.hpp"
#include "kernels/cpu/products/bf16_vectors.hpp"
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

/// Elements [begin, begin + 32) of a row; zeros where there are none.
PECIA_BF16_CODE __m512i load_elements(const TensorView& x, int64_t row, int64_t begin) {
  const int64_t count = std::min<int64_t>(bf16_depth, x.size(1) - begin);
  if (x.dtype() == DType::bf16)
    return (__m512i)load_some(static_cast<const uint16_t*>(x.row(row)) + begin, count);
  const float* const from = static_cast<const float*>(x.row(row)) + begin;
  const auto mask = [](int64_t some) {
    return some >= 16 ? __mmask16{0xffff}
                      : static_cast<__mmask16>((1u << std::max<int64_t>(0, some)) - 1);
  };
  const __m512 low = _mm512_maskz_loadu_ps(mask(count), from);
  const __m512 high = _mm512_maskz_loadu_ps(mask(count - 16), from + 16);
  return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

/// One piece of one square.
PECIA_BF16_CODE void pack_square(const TensorView& x, const RowBlocks& blocks, int64_t block,
                                 int64_t piece, int64_t square, uint16_t* to) {
  const int64_t first_row = block * blocks.block_rows + square * RowBlocks::square_rows;
  const int64_t first = blocks.first_step(piece), end = first + blocks.steps_of(piece);
  for (int64_t step = first; step < end; ++step)
    for (int64_t r = 0; r < RowBlocks::square_rows; ++r, to += bf16_depth) {
      const int64_t row = first_row + r;
      _mm512_storeu_si512(to, row < blocks.rows ? load_elements(x, row, step * bf16_depth)
                                                : _mm512_setzero_si512());
    }
}

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

PECIA_BF16_CODE void write_square(const float* sums, int64_t rows, int64_t columns, float* y,
                                  int64_t stride, bool streamed) {
  constexpr int64_t width = RowBlocks::square_rows;
  const bool on_lines = (reinterpret_cast<uintptr_t>(y) | stride * sizeof(float)) % 64 == 0;
  if (streamed && on_lines && columns == width) {
    for (int64_t r = 0; r < rows; ++r) {
      _mm512_stream_ps(y + r * stride, _mm512_loadu_ps(sums + r * width));
      _mm512_stream_ps(y + r * stride + 16, _mm512_loadu_ps(sums + r * width + 16));
    }
    return;
  }
  for (int64_t r = 0; r < rows; ++r) std::copy_n(sums + r * width, columns, y + r * stride);
}

void end_of_streamed() {
  _mm_sfence();
}

}  // namespace pecia::kernels::cpu
