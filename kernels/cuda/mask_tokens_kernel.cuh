// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The kernel of mask_tokens. Grid x is the row, and grid y cuts it into pieces.

#include <cstdint>

#include "kernels/cuda/shared/elementwise_kernels.cuh"
#include "kernels/cuda/shared/online_softmax.hpp"

namespace pecia::kernels::cuda {

/// MaskTokensArgs. Threads next to each other read the same word.
__global__ void mask_tokens_kernel(const uint32_t* words, int64_t words_of_row, int64_t first_token,
                                   Matrix<float> logits) {
  const int64_t row = blockIdx.x;
  for (int64_t i = first_column<1>(); i < logits.columns; i += column_step<1>()) {
    const int64_t token = first_token + i;
    if ((words[row * words_of_row + token / 32] >> token % 32 & 1) == 0)
      logits.row(row)[i] = minus_infinity;
  }
}

}  // namespace pecia::kernels::cuda
