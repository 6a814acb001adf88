// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Rows of bf16, once for all panels that they are multiplied by, in the order in which tiles read
/// them:
///
///     packed[block][piece of the depth][square][step][half][16 rows][32 elements]
///
/// A block's rows stay in the second cache while panel after panel meets them. A piece of a panel,
/// 20 KiB, stays in the first while the squares of a block meet it, and the rows come in order. What
/// it saves: rows whose distance is a multiple of 4 KiB share the places of one set of the first
/// cache, and rows or elements that are missing need copies.

#include <algorithm>

#include "kernels/api/linear.hpp"
#include "kernels/cpu/products/bf16_kernels.hpp"
#include "lib/base/device/buffer.hpp"
#include "lib/base/device/stream.hpp"

namespace pecia::kernels::cpu {

/// How rows are cut. A square is 32 rows, of which the last may lack some; they are zeros.
struct RowBlocks {
  static constexpr int64_t square_rows = 32;
  static constexpr int64_t step_elements = square_rows * bf16_depth;

  int64_t rows = 0, depth = 0;
  int64_t block_rows = square_rows;  ///< whole squares
  int64_t pieces = 1;

  bool operator==(const RowBlocks&) const = default;

  int64_t num_blocks() const { return (rows + block_rows - 1) / block_rows; }
  int64_t rows_of(int64_t block) const { return std::min(block_rows, rows - block * block_rows); }
  int64_t squares_of(int64_t block) const {
    return (rows_of(block) + square_rows - 1) / square_rows;
  }
  int64_t rows_of_square(int64_t block, int64_t square) const {
    return std::min(square_rows, rows_of(block) - square * square_rows);
  }
  int64_t steps() const { return (depth + bf16_depth - 1) / bf16_depth; }
  int64_t first_step(int64_t piece) const { return steps() * piece / pieces; }
  int64_t steps_of(int64_t piece) const { return first_step(piece + 1) - first_step(piece); }
  /// The first element of a square's piece.
  int64_t at(int64_t block, int64_t piece, int64_t square) const {
    const int64_t before = block * block_rows / square_rows * steps();
    return (before + squares_of(block) * first_step(piece) + square * steps_of(piece)) *
           step_elements;
  }
  int64_t elements() const {
    return (rows + square_rows - 1) / square_rows * steps() * step_elements;
  }
};

/// Cuts rows so that a block and a piece stay in their caches.
RowBlocks row_blocks(int64_t rows, int64_t depth);

/// The packed rows of the last product. Requires has_native_bf16().
class PackedRows {
 public:
  /// Packs x, fp32 (rounded as store_bf16_native does) or bf16, or returns what it packed last, if
  /// that was this x and SameX says that it is the same still.
  const uint16_t* of(const TensorView& x, const RowBlocks& blocks, SameX same_x,
                     const device::Stream& stream);
  /// A product has been given whose rows were not packed.
  void forget() { packed_ = {}; }

 private:
  struct Packed {
    const void* data = nullptr;
    DType dtype = DType::fp32;
    int64_t stride = 0;
    RowBlocks blocks = {};
    bool operator==(const Packed&) const = default;
  };
  Packed packed_;
  device::Buffer buffer_;
};

/// Packs one piece of one square of x, by the vectors of this architecture. Requires
/// has_native_bf16().
void pack_square(const TensorView& x, const RowBlocks& blocks, int64_t block, int64_t piece,
                 int64_t square, uint16_t* to);

/// Writes rows × columns of sums [32, 32] to y. `streamed`: past the caches, where y allows it; then
/// the thread calls end_of_streamed() before others read y.
void write_square(const float* sums, int64_t rows, int64_t columns, float* y, int64_t stride,
                  bool streamed);
void end_of_streamed();

}  // namespace pecia::kernels::cpu
