// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "kernels/cpu/attention/strip.hpp"
#include "kernels/cpu/products/amx_kernel.hpp"
#include "kernels/cpu/products/tile_kernel.hpp"
#include "kernels/cpu/products/twin_tiles.hpp"
#include "lib/base/core/dtype.hpp"
#include "lib/base/core/error.hpp"

namespace pecia::kernels::cpu {
namespace {

/// Sizes with whole squares of tiles, and with parts of them in every direction.
constexpr int64_t rows = 40, columns = 41, depth = 70;

/// Integers in [−4, 4].
std::vector<uint16_t> small_integers(int64_t count, int64_t step) {
  std::vector<uint16_t> numbers(count);
  for (int64_t i = 0; i < count; ++i)
    numbers[i] = float_to_bf16(static_cast<float>(i * step % 9 - 4));
  return numbers;
}

std::vector<float> product_by(const Bf16Kernel& kernel) {
  const auto a = small_integers(rows * depth, 5), b = small_integers(columns * depth, 7);
  std::vector<uint16_t> packed(2 * bf16_panel * kernel.packed_depth(depth));
  std::vector<float> c(rows * columns, 1.0f);
  kernel.pack({b.data(), depth, columns, depth, packed.data()});
  const InThread use(kernel);
  kernel.multiply({.a = a.data(),
                   .a_stride = depth,
                   .b = packed.data(),
                   .c = c.data(),
                   .c_stride = columns,
                   .rows = rows,
                   .columns = columns,
                   .depth = depth,
                   .accumulate = true});
  return c;
}

}  // namespace

std::string difference(const Bf16Kernel& kernel, const Bf16Kernel& twin) {
  const auto found = product_by(kernel), wanted = product_by(twin);
  for (int64_t i = 0; i < rows * columns; ++i)
    if (!(found[i] == wanted[i]))
      return fmt::format("in a product of {} × {} × {}, element [{}, {}] is {} and should be {}",
                         rows, columns, depth, i / columns, i % columns, found[i], wanted[i]);
  return "";
}

const Bf16Kernel& twin_kernel() {
  static const Bf16Kernel kernel =
      tile_kernel_of<TwinTiles>("AMX TDPBF16PS in plain C++", twin_strips());
  return kernel;
}

}  // namespace pecia::kernels::cpu
