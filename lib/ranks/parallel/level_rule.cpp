// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/parallel/level_rule.hpp"

#include "lib/base/core/error.hpp"
#include "lib/ranks/parallel/level_time.hpp"

namespace pecia::parallel {

Micros micros_by_rule(const RingInputs& in, const Levels& levels, const LevelRule& rule) {
  PECIA_CHECK(in.ranks == levels.ranks() && in.rates.flops > 0 && in.rates.all_to_all_bandwidth > 0,
              "{} ranks, levels of {}, {} FLOP/s, {} B/s", in.ranks, levels.ranks(), in.rates.flops,
              in.rates.all_to_all_bandwidth);
  constexpr double least_rows = 64;
  const RankTokens tokens{in.load.new_tokens / in.ranks, in.load.cached_tokens() / in.ranks};
  const std::vector<LevelLoad> loads = level_loads(levels, rule.geometry);
  const LevelRates rates{4 / in.rates.flops,
                         std::vector<double>(loads.size(), 1 / in.rates.all_to_all_bandwidth)};
  if (loads.empty()) return {1};
  std::vector<int> choices;
  for (const int micro : micro_choices)
    if (micro == 1 || rule.kept(2) * tokens.rows >= least_rows * micro) choices.push_back(micro);
  return best_micros(choices, levels.count() - 1, [&](const Micros& micros) {
    return layer_s(loads, rule, tokens, in.shape, rates, micros);
  });
}

}  // namespace pecia::parallel
