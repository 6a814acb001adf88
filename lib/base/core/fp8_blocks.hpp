// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Rows of fp8 as checkpoints store them: number = code · s, with one scale s of a row, or one of
/// every 128 numbers of a row. The last block of a row may be shorter.

#include <cstdint>

namespace pecia {

inline constexpr int64_t fp8_block = 128;

/// The blocks of a row of `numbers` numbers.
constexpr int64_t fp8_blocks(int64_t numbers) {
  return (numbers + fp8_block - 1) / fp8_block;
}

}  // namespace pecia
