// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The functions of kernels/cuda/shared/stores.cuh on the CPU.

#include <algorithm>

#include "lib/base/core/error.hpp"

namespace pecia::kernels::cuda {

inline void store_128(const float (&from)[4], float* global) {
  if (reinterpret_cast<uintptr_t>(global) % 16 != 0)
    ::pecia::fail<::pecia::InvalidArgument>("a misaligned store of 16 bytes");
  std::copy_n(from, 4, global);
}

}  // namespace pecia::kernels::cuda
