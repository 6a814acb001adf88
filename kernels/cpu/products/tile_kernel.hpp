// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Makes the table of a kernel that multiplies by tiles.

#include "kernels/cpu/products/tile_products.hpp"

namespace pecia::kernels::cpu {

/// `Tiles`: AmxTiles or TwinTiles.
template <class Tiles>
Bf16Kernel tile_kernel_of(const char* instructions, const StripKernel& strips) {
  return {.instructions = instructions,
          .tile_rows = square,
          .depth_unit = tile_depth,
          .pack = pack_bf16_tiles,
          .multiply = gemm_tiles<Tiles>,
          .bits_of_few_rows = false,
          .sums_splits = false,
          .strips = &strips,
          .multiply_square = multiply_packed_square<Tiles>,
          .begin = Tiles::begin,
          .end = Tiles::end};
}

}  // namespace pecia::kernels::cpu
