// SPDX-License-Identifier: Apache-2.0
#pragma once
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

}  // namespace pecia::kernels::cuda
