// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>

#include "kernels/cuda/shared/vectors.cuh"

namespace pecia::kernels::cuda {

/// How a row goes to another: in units of bytes, or in units of elements that are widened or rounded.
enum class RowUnit : int32_t { bytes_16, bytes_4, bytes_1, widen_4, widen_1, round_4, round_1 };

/// Rows that are picked. `lanes` threads next to each other, a power of two, take a row.
struct RowPick {
  const std::byte* from;
  std::byte* to;
  const int32_t* rows;  ///< null: 0, 1, …
  int64_t from_pitch, to_pitch, count;
  int32_t units, lanes;
  RowUnit unit;
};

template <typename T>
__device__ __forceinline__ void copy_unit(const std::byte* from, std::byte* to, int unit) {
  reinterpret_cast<T*>(to)[unit] = reinterpret_cast<const T*>(from)[unit];
}
template <int Count, typename From, typename To>
__device__ __forceinline__ void cast_unit(const std::byte* from, std::byte* to, int unit) {
  float values[Count];
  load<Count>(reinterpret_cast<const From*>(from) + Count * unit, values);
  store<Count>(values, reinterpret_cast<To*>(to) + Count * unit);
}

__device__ __forceinline__ void pick_unit(RowUnit kind, const std::byte* from, std::byte* to,
                                          int unit) {
  switch (kind) {
    case RowUnit::bytes_16:
      return copy_unit<Packed<uint32_t, 4>>(from, to, unit);
    case RowUnit::bytes_4:
      return copy_unit<uint32_t>(from, to, unit);
    case RowUnit::bytes_1:
      return copy_unit<uint8_t>(from, to, unit);
    case RowUnit::widen_4:
      return cast_unit<4, Bf16, float>(from, to, unit);
    case RowUnit::widen_1:
      return cast_unit<1, Bf16, float>(from, to, unit);
    case RowUnit::round_4:
      return cast_unit<4, float, Bf16>(from, to, unit);
    case RowUnit::round_1:
      return cast_unit<1, float, Bf16>(from, to, unit);
  }
}

/// Grid: (any, picks).
static __global__ void pick_rows_kernel(const RowPick* picks) {
  const RowPick pick = picks[blockIdx.y];
  const int64_t rows_of_block = blockDim.x / pick.lanes;
  const int lane = static_cast<int>(threadIdx.x) % pick.lanes;
  for (int64_t i = blockIdx.x * rows_of_block + threadIdx.x / pick.lanes; i < pick.count;
       i += gridDim.x * rows_of_block) {
    const int64_t row = pick.rows != nullptr ? pick.rows[i] : i;
    const std::byte* const from = pick.from + row * pick.from_pitch;
    std::byte* const to = pick.to + i * pick.to_pitch;
    for (int unit = lane; unit < pick.units; unit += pick.lanes)
      pick_unit(pick.unit, from, to, unit);
  }
}

}  // namespace pecia::kernels::cuda
