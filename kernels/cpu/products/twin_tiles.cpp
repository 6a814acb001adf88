// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/products/twin_tiles.hpp"

#include <cstring>

#include "kernels/cpu/products/twin_product.hpp"
#include "lib/base/core/error.hpp"

namespace pecia::kernels::cpu::twin {
namespace {

constexpr int num_tiles = 8;

thread_local Tile tiles[num_tiles];
thread_local bool begun = false;

Tile& tile_of(int tile) {
  PECIA_CHECK(begun, "tile {} is used in a thread that has not begun to use tiles", tile);
  return tiles[tile];
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
  add_products_flushed(to, tiles[a], tiles[b]);
}

}  // namespace pecia::kernels::cpu::twin
