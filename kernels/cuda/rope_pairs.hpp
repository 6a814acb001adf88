// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cmath>

#include "kernels/api/rope.hpp"
#include "kernels/cuda/shared/host_device.hpp"

namespace pecia::kernels::cuda {

/// The two elements of a head that turn by angle i of `half`.
struct RopePair {
  int64_t first, second;
};
PECIA_HD RopePair rope_pair(RopePairs pairs, int64_t i, int64_t half) {
  return pairs == RopePairs::halves ? RopePair{i, i + half} : RopePair{2 * i, 2 * i + 1};
}

/// Turns two elements by an angle. It is fused here, so that all kernels give the same bits.
PECIA_HD void turn(float& a, float& b, float cos, float sin) {
  const float turned = fmaf(a, cos, -(b * sin));
  b = fmaf(b, cos, a * sin);
  a = turned;
}

}  // namespace pecia::kernels::cuda
