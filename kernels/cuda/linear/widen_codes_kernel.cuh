// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/cuda/linear/codes.cuh"
#include "kernels/cuda/shared/elementwise_kernels.cuh"

namespace pecia::kernels::cuda {

/// Numbers of a row of codes, rounded to bf16. `to` is aligned to 16 bytes. A thread takes a chunk at
/// a time; grid y cuts the row into pieces.
template <typename Codes, bool Aligned>
__device__ __forceinline__ void widen_row(const CodeRows& from, const CodeScales& scales,
                                          int64_t row, Bf16* to) {
  const int64_t chunks = (from.bytes + chunk_bytes - 1) / chunk_bytes;
  for (int64_t i = first_column<1>(); i < chunks; i += column_step<1>()) {
    const int place = static_cast<int>(i % chunks_of_stretch);
    const int64_t first = i / chunks_of_stretch * Codes::numbers;
    const Chunk chunk = load_chunk<Aligned>(from.row(row), i, from.bytes);
    const int scale = Codes::chunk_scale(scales, row, first + Codes::first_of(place, 0));
#pragma unroll
    for (int run = 0; run < Codes::runs; ++run) {
      const int64_t begin = first + Codes::first_of(place, run);
      float numbers[run_numbers];
      load_numbers<Codes>(chunk, run, scale, Codes::affine(scales, row, begin), numbers);
      if (begin + run_numbers <= from.numbers) {
        store<run_numbers>(numbers, to + begin);
        continue;
      }
#pragma unroll
      for (int j = 0; j < run_numbers; ++j)
        if (begin + j < from.numbers) to[begin + j] = rounded_to<Bf16>(numbers[j]);
    }
  }
}

/// Does so for each row of `from`, which is grid x.
template <typename Codes, bool Aligned>
__global__ void widen_codes_kernel(CodeRows from, CodeScales scales, Matrix<Bf16> to) {
  widen_row<Codes, Aligned>(from, scales, blockIdx.x, to.row(blockIdx.x));
}

}  // namespace pecia::kernels::cuda
