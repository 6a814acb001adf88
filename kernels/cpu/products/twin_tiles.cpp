// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/products/twin_tiles.hpp"

#include <immintrin.h>

#include <cmath>
#include <cstring>

#include "lib/base/core/dtype.hpp"
#include "lib/base/core/error.hpp"

namespace pecia::kernels::cpu::twin {
namespace {

constexpr int num_tiles = 8, num_rows = 16, row_bytes = 64;
constexpr int num_pairs = row_bytes / 4;

struct Tile {
  alignas(64) std::byte rows[num_rows][row_bytes];

  float number(int row, int element) const {
    uint16_t bits;
    std::memcpy(&bits, rows[row] + element * sizeof bits, sizeof bits);
    return bf16_to_float(bits);
  }
};

thread_local Tile tiles[num_tiles];
thread_local bool begun = false;

Tile& tile_of(int tile) {
  PECIA_CHECK(begun, "tile {} is used in a thread that has not begun to use tiles", tile);
  return tiles[tile];
}

/// While it lives, the CPU's own additions and multiplications flush denormals as the instructions
/// of AMX do.
class Flushing {
 public:
  Flushing() { _mm_setcsr((before_ | flush) & ~rounding); }
  ~Flushing() { _mm_setcsr(before_); }

 private:
  static constexpr unsigned flush = 0x8040;     // FTZ and DAZ
  static constexpr unsigned rounding = 0x6000;  // to nearest, ties to even
  unsigned before_ = _mm_getcsr();
};

/// A function of its own, which the compiler does not move out of the life of Flushing.
__attribute__((noinline, target("fma"))) void add_products(Tile& sum, const Tile& a,
                                                           const Tile& b) {
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

}  // namespace

void begin() {
  PECIA_CHECK(!begun, "a thread begins to use tiles while it uses them");
  begun = true;
  std::memset(tiles, 0, sizeof tiles);  // as a new configuration does
}

void end() {
  PECIA_CHECK(begun, "a thread ends the use of tiles, and has not begun it");
  begun = false;
}

void load(int tile, const void* from, int64_t stride_bytes) {
  Tile& to = tile_of(tile);
  for (int row = 0; row < num_rows; ++row)
    std::memcpy(to.rows[row], static_cast<const std::byte*>(from) + row * stride_bytes, row_bytes);
}

void store(int tile, void* to, int64_t stride_bytes) {
  const Tile& from = tile_of(tile);
  for (int row = 0; row < num_rows; ++row)
    std::memcpy(static_cast<std::byte*>(to) + row * stride_bytes, from.rows[row], row_bytes);
}

void zero(int tile) {
  std::memset(tile_of(tile).rows, 0, sizeof(Tile));
}

void multiply(int sum, int a, int b) {
  PECIA_CHECK(sum != a && sum != b && a != b, "tiles {}, {} and {} of a product are not three", sum,
              a, b);
  Tile& to = tile_of(sum);
  const Flushing flushing;
  add_products(to, tiles[a], tiles[b]);
}

}  // namespace pecia::kernels::cpu::twin
