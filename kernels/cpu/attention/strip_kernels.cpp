// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention/strip_lanes.hpp"
#include "kernels/cpu/attention/strip_products.hpp"
#include "kernels/cpu/products/amx_tiles.hpp"
#include "kernels/cpu/products/twin_tiles.hpp"

namespace pecia::kernels::cpu {
namespace {

template <class Products>
StripKernel strips_of(const Lanes& lanes) {
  return {
      .one_half = {lanes.one_half, Products::template multiply<1>, Products::template add<1>},
      .two_halves = {lanes.two_halves, Products::template multiply<2>, Products::template add<2>},
      .pack_values = lanes.pack_values,
      .begin = Products::begin,
      .end = Products::end};
}

}  // namespace

const StripKernel& vector_strips() {
  static const StripKernel strips = strips_of<VectorProducts>(vector_lanes());
  return strips;
}

const StripKernel& amx_strips() {
  static const StripKernel strips = strips_of<TileProducts<AmxTiles>>(vector_lanes());
  return strips;
}

const StripKernel& twin_strips() {
  static const StripKernel strips = strips_of<TileProducts<TwinTiles>>(plain_lanes());
  return strips;
}

}  // namespace pecia::kernels::cpu
