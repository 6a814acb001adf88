// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention/strip_products.hpp"
#include "kernels/cpu/attention/strips_of.hpp"
#include "kernels/cpu/products/twin_tiles.hpp"

namespace pecia::kernels::cpu {

const StripKernel& vector_strips() {
  static const StripKernel strips = strips_of<VectorProducts>(vector_lanes());
  return strips;
}

const StripKernel& twin_strips() {
  static const StripKernel strips = strips_of<TileProducts<TwinTiles>>(plain_lanes());
  return strips;
}

}  // namespace pecia::kernels::cpu
