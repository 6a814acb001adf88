// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The ways to multiply many rows of bf16, as a table. A kernel names its instructions, the tile
/// that its registers hold, how it packs the right-hand side, and the product. A new instruction
/// set is one file with its kernel, and one function below. Few rows are not here, since memory
/// limits them (bf16_few_rows.hpp).
///
/// Every sum is one chain in order of depth. It may be cut at multiples of bf16_depth elements, and
/// the bits are the same. They depend neither on the other rows nor on the other columns.

#include "kernels/cpu/products/bf16_products.hpp"

namespace pecia::kernels::cpu {

inline constexpr int64_t bf16_depth = 32;

struct StripKernel;

/// sums = begin + a · b for a square of 32 rows, or the first 16 of it, and one panel of columns.
struct SquareArgs {
  const uint16_t* a;   ///< PackedRows, from a step of the square on
  const uint16_t* b;   ///< a panel of pack_bf16_tiles, from the same step on
  int64_t steps;       ///< of bf16_depth elements
  int64_t rows;        ///< 1 to 32; with more than 16 all sums are written, else the upper half
  const float* begin;  ///< null: zeros; else rows of 32 numbers, begin_stride apart, which may be 0
  int64_t begin_stride;
  float* sums;  ///< [32, 32], may be `begin`
};

struct Bf16Kernel {
  const char* instructions;
  int64_t tile_rows;                      ///< of c, which registers hold at a time
  int64_t depth_unit;                     ///< `pack` pads the depth with zeros to a multiple of it
  void (*pack)(const PackBf16Args&);      ///< as pack_bf16
  void (*multiply)(const GemmBf16Args&);  ///< as gemm_bf16
  bool bits_of_few_rows;                  ///< `multiply` has the bits of bf16_few_rows.hpp
  bool sums_splits;                       ///< `multiply` takes most_splits
  const StripKernel* strips;              ///< of attention
  /// Null: the kernel gains nothing by rows that are packed.
  void (*multiply_square)(const SquareArgs&) = nullptr;
  /// A thread calls `begin` before `multiply`, and `end` afterwards (InThread). Null: nothing to do.
  void (*begin)() = nullptr;
  void (*end)() = nullptr;

  int64_t packed_depth(int64_t depth) const {
    return (depth + depth_unit - 1) / depth_unit * depth_unit;
  }
};

/// While it lives, its thread may multiply by the kernel.
class InThread {
 public:
  explicit InThread(const Bf16Kernel& kernel) : kernel_(kernel) {
    if (kernel_.begin != nullptr) kernel_.begin();
  }
  InThread(const InThread&) = delete;
  InThread& operator=(const InThread&) = delete;
  ~InThread() {
    if (kernel_.end != nullptr) kernel_.end();
  }

 private:
  const Bf16Kernel& kernel_;
};

/// By the vectors of this architecture: of AVX512-BF16, or by BFMMLA. Requires has_native_bf16().
const Bf16Kernel& bf16_vectors();

}  // namespace pecia::kernels::cpu
