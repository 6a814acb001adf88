// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/products/twin_product.hpp"

#include <immintrin.h>

namespace pecia::kernels::cpu::twin {
namespace {

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
__attribute__((noinline, target("fma"))) void add(Tile& sum, const Tile& a, const Tile& b) {
  add_products(sum, a, b);
}

}  // namespace

void add_products_flushed(Tile& sum, const Tile& a, const Tile& b) {
  const Flushing flushing;
  add(sum, a, b);
}

}  // namespace pecia::kernels::cpu::twin
