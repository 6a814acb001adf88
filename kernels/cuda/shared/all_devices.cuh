// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Reads and writes of memory that other devices and the host write and read meanwhile, one function
/// for each (instructions.cuh).

#include "kernels/cuda/shared/instructions.cuh"
#include "kernels/cuda/shared/vectors.cuh"

#ifdef __CUDACC__

namespace pecia::kernels::cuda {

/// Writes a number. Who reads it by told_by_any_device then sees what this thread had seen written
/// before, by itself and by the threads of its block up to their last barrier.
__device__ __forceinline__ void tell_all_devices(uint32_t* to, uint32_t value) {
  __threadfence_system();
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
__device__ __forceinline__ uint32_t told_by_any_device(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}

/// Reads 16 bytes, and not from a cache of this device that may have older ones.
template <typename T>
__device__ __forceinline__ Packed<T, 16 / sizeof(T)> read_of_any_device(
    const Packed<T, 16 / sizeof(T)>* from) {
  Packed<uint32_t, 4> words;
  asm volatile("ld.volatile.global.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(words.values[0]), "=r"(words.values[1]), "=r"(words.values[2]),
                 "=r"(words.values[3])
               : "l"(from)
               : "memory");
  return *reinterpret_cast<const Packed<T, 16 / sizeof(T)>*>(&words);
}

/// Lets other work go on before the next look at a number.
__device__ __forceinline__ void wait_a_little() {
  __nanosleep(20);
}

}  // namespace pecia::kernels::cuda

#endif  // __CUDACC__
