// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Makes the table of a strip's steps from products and lanes.

#include "kernels/cpu/attention/strip_lanes.hpp"

namespace pecia::kernels::cpu {

/// `Products` has what strip_products.hpp shows.
template <class Products>
StripKernel strips_of(const Lanes& lanes) {
  return {
      .one_half = {lanes.one_half, Products::template multiply<1>, Products::template add<1>},
      .two_halves = {lanes.two_halves, Products::template multiply<2>, Products::template add<2>},
      .pack_values = lanes.pack_values,
      .begin = Products::begin,
      .end = Products::end};
}

}  // namespace pecia::kernels::cpu
