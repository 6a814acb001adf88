// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "kernels/reference/reference.hpp"

namespace pecia::kernels::reference {

void mask_tokens(const MaskTokensArgs& args) {
  for (int64_t r = 0; r < args.logits.rows(); ++r)
    for (int64_t i = 0; i < args.logits.size(1); ++i) {
      const int64_t token = args.first_token + i;
      const uint32_t word = args.words[r * args.words_of_row() + token / 32];
      if ((word >> token % 32 & 1) == 0)
        row_of(args.logits, r)[i] = -std::numeric_limits<float>::infinity();
    }
}

}  // namespace pecia::kernels::reference
