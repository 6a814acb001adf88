// SPDX-License-Identifier: Apache-2.0
#pragma once
/// One product of the twin's tiles (twin_tiles.hpp).

#include <cmath>
#include <cstddef>
#include <cstring>

#include "lib/base/core/dtype.hpp"

namespace pecia::kernels::cpu::twin {

constexpr int num_rows = 16, row_bytes = 64;
constexpr int num_pairs = row_bytes / 4;

struct Tile {
  alignas(64) std::byte rows[num_rows][row_bytes];

  float number(int row, int element) const {
    uint16_t bits;
    std::memcpy(&bits, rows[row] + element * sizeof bits, sizeof bits);
    return bf16_to_float(bits);
  }
};

/// sum += a · b. The caller has the CPU flush denormals and round to nearest.
[[gnu::always_inline]] inline void add_products(Tile& sum, const Tile& a, const Tile& b) {
  for (int m = 0; m < num_rows; ++m)
    for (int n = 0; n < num_pairs; ++n) {
      float even = 0, odd = 0;
      for (int k = 0; k < num_pairs; ++k) {
        even = std::fma(a.number(m, 2 * k), b.number(k, 2 * n), even);
        odd = std::fma(a.number(m, 2 * k + 1), b.number(k, 2 * n + 1), odd);
      }
      float total;
      std::memcpy(&total, sum.rows[m] + n * sizeof total, sizeof total);
      total = total + (even + odd);
      std::memcpy(sum.rows[m] + n * sizeof total, &total, sizeof total);
    }
}

/// The same while the CPU's own additions and multiplications flush denormals, as the instructions
/// of AMX do, and round to nearest, ties to even. Each architecture has its own switch for that.
void add_products_flushed(Tile& sum, const Tile& a, const Tile& b);

}  // namespace pecia::kernels::cpu::twin
