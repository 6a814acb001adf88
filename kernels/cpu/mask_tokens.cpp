// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>

#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/shared/parallel.hpp"

namespace pecia::kernels::cpu {
namespace {

constexpr float none = -std::numeric_limits<float>::infinity();

/// Logits of at most 32 tokens, whose bits begin at the lowest. Most words are all ones or zeros.
void mask(float* logits, int64_t count, uint32_t bits) {
  const uint32_t all = count == 32 ? ~uint32_t{0} : (uint32_t{1} << count) - 1;
  if ((bits & all) == all) return;
  if ((bits & all) == 0) {
    std::fill_n(logits, count, none);
    return;
  }
  for (int64_t i = 0; i < count; ++i) logits[i] = (bits >> i & 1) != 0 ? logits[i] : none;
}

}  // namespace

void mask_tokens(const MaskTokensArgs& args, const device::Stream& stream) {
  const int64_t part = args.logits.size(1), words_of_row = args.words_of_row();
  for_each_range(stream, args.logits.rows(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      auto* const logits = static_cast<float*>(args.logits.row(r));
      const uint32_t* const words = args.words.data() + r * words_of_row;
      for (int64_t i = 0; i < part;) {
        const int64_t token = args.first_token + i, bit = token % 32;
        const int64_t count = std::min(32 - bit, part - i);
        mask(logits + i, count, words[token / 32] >> bit);
        i += count;
      }
    }
  });
}

}  // namespace pecia::kernels::cpu
