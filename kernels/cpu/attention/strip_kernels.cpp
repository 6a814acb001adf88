// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention/strip_lanes.hpp"
#include "kernels/cpu/attention/strip_products.hpp"
#include "kernels/cpu/products/amx_tiles.hpp"
#include "kernels/cpu/products/twin_tiles.hpp"

namespace pecia::kernels::cpu {
namespace {

template <class Products, class Lanes, int kHalves>
constexpr StripSteps steps = {
    .pack = Lanes::template pack<kHalves>,
    .see = Lanes::template see<kHalves>,
    .multiply = Products::template multiply<kHalves>,
    .find_highest = Lanes::template find_highest<kHalves>,
    .raise = Lanes::template raise<kHalves>,
    .weigh = Lanes::template weigh<kHalves>,
    .add = Products::template add<kHalves>,
    .write = Lanes::template write<kHalves>,
    .read = Lanes::template read<kHalves>,
};

template <class Products, class Lanes>
constexpr StripKernel strips = {
    .one_half = steps<Products, Lanes, 1>,
    .two_halves = steps<Products, Lanes, 2>,
    .pack_values = Lanes::pack_values,
    .begin = Products::begin,
    .end = Products::end,
};

}  // namespace

const StripKernel& vector_strips() {
  return strips<VectorProducts, VectorLanes>;
}

const StripKernel& amx_strips() {
  return strips<TileProducts<AmxTiles>, VectorLanes>;
}

const StripKernel& twin_strips() {
  return strips<TileProducts<TwinTiles>, PlainLanes>;
}

}  // namespace pecia::kernels::cpu
