// SPDX-License-Identifier: Apache-2.0
#pragma once
/// gemm_bf16 by tiles (AmxTiles or TwinTiles). Four tiles hold 32 × 32 sums, and two more tiles each
/// hold rows of a and columns of b for 32 elements of the depth:
///
///               tile 6   tile 7      32 elements × 16 columns of b, packed in pairs
///     tile 4    tile 0   tile 1
///     tile 5    tile 2   tile 3      16 × 16 sums each
///
/// Rows of a are read in place, since rows of 64 bytes are what a tile holds. Where rows or elements
/// are missing they are copied first, with zeros. Rows that are packed already, in tiles of 1 KiB
/// (packed_rows.hpp), need no copies. Every element of c is one chain in order of depth, so its bits
/// depend neither on the rows beside it nor on the cuts below.

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "kernels/cpu/products/bf16_kernels.hpp"

namespace pecia::kernels::cpu {

constexpr int64_t tile_side = 16;           ///< rows of a and columns of b
constexpr int64_t tile_depth = bf16_depth;  ///< elements
constexpr int64_t square = 2 * tile_side;   ///< rows and columns of the four tiles of sums

/// Squares whose rows or sums went through a copy, of all threads: those of usual sizes never do.
inline std::atomic<int64_t> copied_squares = 0;

/// Most tiles of a piece of packed columns. A piece of 32 rows and a piece of 32 columns
/// take 20 KiB each, so both stay in a first cache of 48 KiB while all columns and rows meet.
constexpr int64_t most_steps = 10;

/// Rows of bf16 where tiles may read them: 32 rows, and whole steps of the depth.
struct TileRows16 {
  const uint16_t* data;
  int64_t stride;             ///< from row to row
  int64_t step = tile_depth;  ///< from one step of the depth to the next
};

/// 16 × 16 sums in each of four tiles.
struct TileSums16 {
  const float* begin;  ///< what they begin with; null: zeros
  int64_t begin_stride;
  float* c;  ///< where they go
  int64_t c_stride;
};

/// c = begin + a · b for 32 rows (or 16, with kTall 1) and 32 columns, over `steps` steps of the
/// depth.
template <class Tiles, int kTall>
inline void multiply_square(TileRows16 a, const uint16_t* b, int64_t steps,
                            const TileSums16& sums) {
  constexpr int64_t b_stride = 2 * bf16_panel;  // of pairs
  const int64_t c_bytes = sums.c_stride * static_cast<int64_t>(sizeof(float));
  const int64_t a_bytes = a.stride * static_cast<int64_t>(sizeof(uint16_t));
  constexpr int64_t b_bytes = b_stride * static_cast<int64_t>(sizeof(uint16_t));
  if (const float* const from = sums.begin; from != nullptr) {
    const int64_t bytes = sums.begin_stride * static_cast<int64_t>(sizeof(float));
    Tiles::template load<0>(from, bytes);
    Tiles::template load<1>(from + tile_side, bytes);
    if constexpr (kTall == 2) {
      Tiles::template load<2>(from + tile_side * sums.begin_stride, bytes);
      Tiles::template load<3>(from + tile_side * sums.begin_stride + tile_side, bytes);
    }
  } else {
    Tiles::template zero<0>();
    Tiles::template zero<1>();
    if constexpr (kTall == 2) {
      Tiles::template zero<2>();
      Tiles::template zero<3>();
    }
  }
  for (int64_t step = 0; step < steps; ++step) {
    const uint16_t* const rows = a.data + step * a.step;
    const uint16_t* const columns = b + step * (tile_depth / 2) * b_stride;
    Tiles::template load<6>(columns, b_bytes);
    Tiles::template load<4>(rows, a_bytes);
    Tiles::template multiply<0, 4, 6>();
    Tiles::template load<7>(columns + 2 * tile_side, b_bytes);
    Tiles::template multiply<1, 4, 7>();
    if constexpr (kTall == 2) {
      Tiles::template load<5>(rows + tile_side * a.stride, a_bytes);
      Tiles::template multiply<2, 5, 6>();
      Tiles::template multiply<3, 5, 7>();
    }
  }
  Tiles::template store<0>(sums.c, c_bytes);
  Tiles::template store<1>(sums.c + tile_side, c_bytes);
  if constexpr (kTall == 2) {
    float* const lower = sums.c + tile_side * sums.c_stride;
    Tiles::template store<2>(lower, c_bytes);
    Tiles::template store<3>(lower + tile_side, c_bytes);
  }
}

/// The same for `rows` × `columns` of c that are there. What is not a whole square goes through a
/// buffer.
template <class Tiles>
void multiply_part(TileRows16 a, const uint16_t* b, int64_t steps, float* c, int64_t c_stride,
                   int64_t rows, int64_t columns, bool accumulate) {
  const auto multiply = [&](float* to, int64_t stride) {
    const TileSums16 sums{accumulate ? to : nullptr, stride, to, stride};
    if (rows > tile_side)
      multiply_square<Tiles, 2>(a, b, steps, sums);
    else
      multiply_square<Tiles, 1>(a, b, steps, sums);
  };
  if (columns == square && rows % tile_side == 0) return multiply(c, c_stride);
  copied_squares.fetch_add(1, std::memory_order_relaxed);
  alignas(64) float whole[square * square];
  for (int64_t r = 0; accumulate && r < rows; ++r)
    std::copy_n(c + r * c_stride, columns, whole + r * square);
  multiply(whole, square);
  for (int64_t r = 0; r < rows; ++r) std::copy_n(whole + r * square, columns, c + r * c_stride);
}

/// Elements [begin, begin + depth) of `rows` rows of a, in place or copied.
inline TileRows16 rows_for_tiles(const GemmBf16Args& args, int64_t row, int64_t rows, int64_t begin,
                                 int64_t depth, uint16_t* copy) {
  const uint16_t* const from = args.a + row * args.a_stride + begin;
  if (rows % tile_side == 0 && depth % tile_depth == 0) return {from, args.a_stride};
  copied_squares.fetch_add(1, std::memory_order_relaxed);
  const int64_t stride = (depth + tile_depth - 1) / tile_depth * tile_depth;
  for (int64_t r = 0; r < square; ++r) {
    const int64_t count = r < rows ? depth : 0;
    std::copy_n(from + r * args.a_stride, count, copy + r * stride);
    std::fill(copy + r * stride + count, copy + (r + 1) * stride, 0);
  }
  return {copy, stride};
}

/// Computes what gemm_bf16 computes, from panels whose depth is padded to whole tiles
/// (pack_bf16_tiles). Nothing past the end of a is read. The thread has called Tiles::begin.
template <class Tiles>
void gemm_tiles(const GemmBf16Args& args) {
  const int64_t steps = (args.depth + tile_depth - 1) / tile_depth;
  const int64_t pieces = std::max<int64_t>(1, (steps + most_steps - 1) / most_steps);
  alignas(64) uint16_t copy[square * most_steps * tile_depth];
  for (int64_t piece = 0; piece < pieces; ++piece) {
    const int64_t first = steps * piece / pieces, end = steps * (piece + 1) / pieces;
    const int64_t begin = first * tile_depth;
    const int64_t depth = std::min(args.depth, end * tile_depth) - begin;
    for (int64_t row = 0; row < args.rows; row += square) {
      const int64_t rows = std::min(square, args.rows - row);
      const TileRows16 a = rows_for_tiles(args, row, rows, begin, depth, copy);
      for (int64_t column = 0; column < args.columns; column += bf16_panel) {
        const int64_t columns = std::min(bf16_panel, args.columns - column);
        const uint16_t* const b =
            args.b + column * args.column_stride(tile_depth) + begin * bf16_panel;
        float* const c = args.c + row * args.c_stride + column;
        multiply_part<Tiles>(a, b, end - first, c, args.c_stride, rows, columns,
                             args.accumulate || piece > 0);
      }
    }
  }
}
static_assert(square == bf16_panel);

/// Computes Bf16Kernel::multiply_square. The thread has called Tiles::begin.
template <class Tiles>
void multiply_packed_square(const SquareArgs& args) {
  const TileRows16 a{args.a, tile_depth, square * tile_depth};
  const TileSums16 sums{args.begin, args.begin_stride, args.sums, square};
  if (args.rows > tile_side)
    multiply_square<Tiles, 2>(a, args.b, args.steps, sums);
  else
    multiply_square<Tiles, 1>(a, args.b, args.steps, sums);
}

}  // namespace pecia::kernels::cpu
