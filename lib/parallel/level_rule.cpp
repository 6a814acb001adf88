// SPDX-License-Identifier: Apache-2.0
#include "lib/parallel/level_rule.hpp"

#include <algorithm>

#include "lib/core/error.hpp"

namespace pecia::parallel {

int best_micro(const RingInputs& in, const LevelRule& rule) {
  PECIA_CHECK(in.ranks >= 1 && in.rates.flops > 0 && in.rates.all_to_all_bandwidth > 0,
              "{} ranks, {} FLOP/s, {} B/s", in.ranks, in.rates.flops,
              in.rates.all_to_all_bandwidth);
  constexpr double least_rows = 64, price = 0.01;
  const double ranks = in.ranks, tokens = in.load.new_tokens, cached = in.load.cached_tokens();
  const double rows = tokens / ranks, kept = rule.kept(2), others = 1 - 1 / ranks;
  const double row_flops = 4 * in.shape.num_heads / in.rates.flops;
  const double own_s = row_flops * rows * (rows / 2 + cached / ranks);
  const double attention_s = row_flops * kept * kept * rows * (tokens * others / 2 + cached);
  const double sent = kept * rows * others / in.rates.all_to_all_bandwidth;
  const double tokens_s = sent * (in.shape.num_heads * in.shape.q_bytes +
                                  2 * in.shape.num_kv_heads * in.shape.kv_bytes);
  const double outputs_s = sent * in.shape.num_heads * in.shape.out_bytes;
  int best = 1;
  double least_s = 0;
  for (int parts = 1, doublings = 0; parts <= 8; parts *= 2, ++doublings) {
    if (parts > 1 && kept * rows < least_rows * parts) break;
    const double by_attention = std::max(0.0, tokens_s / parts - own_s) + outputs_s / parts;
    const double by_link =
        tokens_s - own_s - attention_s + std::max((attention_s + outputs_s) / parts, outputs_s);
    const double seconds = std::max(by_attention, by_link) + price * doublings * attention_s;
    if (parts == 1 || seconds < least_s) best = parts, least_s = seconds;
  }
  return best;
}

}  // namespace pecia::parallel
