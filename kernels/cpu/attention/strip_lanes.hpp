// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The steps of a strip that are no products, for one and two halves, as tables.

#include "kernels/cpu/attention/strip.hpp"

namespace pecia::kernels::cpu {

struct Lanes {
  LaneSteps one_half, two_halves;
  void (*pack_values)(const PackValues&);

  template <int kHalves>
  const LaneSteps& of() const {
    return kHalves == 1 ? one_half : two_halves;
  }
};

/// By the vectors of this architecture. Requires has_native_bf16().
const Lanes& vector_lanes();
/// In plain C++, with the same bits.
const Lanes& plain_lanes();

/// The table of a class whose static functions have the names of the steps.
template <class Steps>
constexpr Lanes lanes_of() {
  constexpr auto of = []<int kHalves>() {
    return LaneSteps{.pack = Steps::template pack<kHalves>,
                     .see = Steps::template see<kHalves>,
                     .find_highest = Steps::template find_highest<kHalves>,
                     .raise = Steps::template raise<kHalves>,
                     .weigh = Steps::template weigh<kHalves>,
                     .write = Steps::template write<kHalves>,
                     .read = Steps::template read<kHalves>};
  };
  return {of.template operator()<1>(), of.template operator()<2>(), Steps::pack_values};
}

}  // namespace pecia::kernels::cpu
