// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/products/twin_product.hpp"

#include <cstdint>

namespace pecia::kernels::cpu::twin {
namespace {

/// While it lives, additions and multiplications flush denormals and round to nearest.
class Flushing {
 public:
  Flushing() {
    asm volatile("mrs %0, fpcr" : "=r"(before_));
    set((before_ | flush) & ~rounding);
  }
  ~Flushing() { set(before_); }

 private:
  static constexpr uint64_t flush = uint64_t{1} << 24;     // FZ
  static constexpr uint64_t rounding = uint64_t{3} << 22;  // to nearest, ties to even
  static void set(uint64_t mode) { asm volatile("msr fpcr, %0" : : "r"(mode) : "memory"); }
  uint64_t before_ = 0;
};

/// A function of its own, which the compiler does not move out of the life of Flushing.
__attribute__((noinline)) void add(Tile& sum, const Tile& a, const Tile& b) {
  add_products(sum, a, b);
}

}  // namespace

void add_products_flushed(Tile& sum, const Tile& a, const Tile& b) {
  const Flushing flushing;
  add(sum, a, b);
}

}  // namespace pecia::kernels::cpu::twin
