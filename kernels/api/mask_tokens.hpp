// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <span>

#include "lib/base/core/tensor_view.hpp"

namespace pecia::kernels {

/// Leaves the logits of those tokens alone that may come next.
///
///     logits[r, i] = −infinity   unless bit t % 32 of words[r · W + t / 32] is 1, t = first_token + i
///
/// W is the number of words of each row. Zero rows do nothing.
struct MaskTokensArgs {
  TensorView logits;                ///< [rows, part] fp32; logits of first_token, …; written
  int64_t first_token = 0;          ///< ≥ 0
  std::span<const uint32_t> words;  ///< [rows · W], with a bit for each token of the part

  int64_t words_of_row() const {
    return logits.rows() == 0 ? 0 : static_cast<int64_t>(words.size()) / logits.rows();
  }
};

}  // namespace pecia::kernels
