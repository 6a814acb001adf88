// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Loads and stores several elements of a stored type at once. It takes one access of memory, to
/// which the elements must be aligned.

#include "kernels/cuda/shared/instructions.cuh"

namespace pecia::kernels::cuda {

template <typename T, int Count>
struct alignas(sizeof(T) * Count) Packed {
  T values[Count];
};

template <int Count, typename T>
__device__ __forceinline__ void load(const T* from, float (&to)[Count]) {
  const auto packed = *reinterpret_cast<const Packed<T, Count>*>(from);
#pragma unroll
  for (int i = 0; i < Count; ++i) to[i] = widen(packed.values[i]);
}

template <int Count, typename T>
__device__ __forceinline__ void store(const float (&from)[Count], T* to) {
  Packed<T, Count> packed;
#pragma unroll
  for (int i = 0; i < Count; ++i) packed.values[i] = rounded_to<T>(from[i]);
  *reinterpret_cast<Packed<T, Count>*>(to) = packed;
}

}  // namespace pecia::kernels::cuda
