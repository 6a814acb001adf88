// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Stores of 128 bits where the compiler splits those of vectors.cuh.

#ifdef __CUDACC__

namespace pecia::kernels::cuda {

__device__ __forceinline__ void store_128(const float (&from)[4], float* global) {
  asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(global), "f"(from[0]), "f"(from[1]),
               "f"(from[2]), "f"(from[3])
               : "memory");
}

}  // namespace pecia::kernels::cuda

#endif  // __CUDACC__
