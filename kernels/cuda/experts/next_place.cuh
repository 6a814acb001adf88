// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/cuda/shared/instructions.cuh"

namespace pecia::kernels::cuda {

/// Returns the place of the smallest chosen expert above `before`.
__device__ __forceinline__ int64_t next_place(const int32_t* chosen, int64_t k, int32_t before) {
  int64_t next = -1;
  for (int64_t j = 0; j < k; ++j)
    if (chosen[j] > before && (next < 0 || chosen[j] < chosen[next])) next = j;
  return next;
}

}  // namespace pecia::kernels::cuda
