// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Matrices in shared memory as the tensor cores of compute capability 9.0 read them (PTX ISA,
/// "Asynchronous Warpgroup Level Matrix Instructions", shared memory layouts and matrix descriptors).
/// The emulator reads them by the same descriptors.

#include <cstdint>

#include "kernels/cuda/shared/host_device.hpp"

namespace pecia::kernels::cuda {

/// Rows × Columns elements of 2 bytes. Columns are in blocks of 64, or of 32 where 64 does not divide
/// them. A block has all rows, 128 or 64 bytes each, one after the other. In a row, chunks of 16
/// bytes are swizzled by the row's number, so that both eight rows at one column and one row are in
/// different banks:
///
///     offset of a chunk, of 128 bytes:  bits 4 … 6 ^= bits 7 … 9     of 64:  bits 4, 5 ^= bits 7, 8
///
/// The hardware applies this to addresses, so a matrix begins at a multiple of `alignment`.
template <int Rows, int Columns>
struct SwizzledMatrix {
  static_assert(Columns % 32 == 0 && Rows % 16 == 0);
  static constexpr int block_columns = Columns % 64 == 0 ? 64 : 32;
  static constexpr int row_bytes = 2 * block_columns;
  static constexpr int block_bytes = Rows * row_bytes;
  static constexpr int elements = Rows * Columns, bytes = 2 * elements;
  static constexpr int group_bytes = 8 * row_bytes;  ///< eight rows, after which swizzling repeats
  static constexpr int alignment = 1024;

  /// Returns the byte at which the chunk with element (row, column) begins. `column` is a multiple
  /// of 8.
  PECIA_HD static int chunk_at(int row, int column) {
    const int in_block = row * row_bytes + column % block_columns / 8 * 16;
    return column / block_columns * block_bytes + (in_block ^ (row % 8 * row_bytes / 8 & ~15));
  }
  PECIA_HD static constexpr int row_at(int row) { return row * row_bytes; }

  /// The descriptor of rows from `address` in shared memory on, as the side of a product that is summed
  /// along columns, the first 16 of them. It begins at the first or another group of eight rows.
  PECIA_HD static uint64_t along_columns(uint32_t address) { return descriptor(address, 16); }
  /// What is added to it for the 16 columns from `column` on.
  PECIA_HD static constexpr uint64_t to_column(int column) {
    return (column / block_columns * block_bytes + column % block_columns * 2) >> 4;
  }
  /// The descriptor of all columns, as the side of a product that is summed along rows, the first 16 of
  /// them. `address` is where the matrix begins.
  PECIA_HD static uint64_t along_rows(uint32_t address) { return descriptor(address, block_bytes); }
  /// What is added to it for the 16 rows from `row` on.
  PECIA_HD static constexpr uint64_t to_row(int row) { return (row * row_bytes) >> 4; }

 private:
  /// Where the matrix begins, from one block of columns to the next (not used along columns), from
  /// one group of rows to the next, and which chunks are swizzled: 1 of 128 bytes, 2 of 64.
  PECIA_HD static uint64_t descriptor(uint32_t start, uint32_t blocks) {
    constexpr uint64_t swizzle = row_bytes == 128 ? 1 : 2;
    return uint64_t{(start & 0x3ffff) >> 4} | uint64_t{blocks >> 4} << 16 |
           uint64_t{group_bytes >> 4} << 32 | swizzle << 62;
  }
};

}  // namespace pecia::kernels::cuda
