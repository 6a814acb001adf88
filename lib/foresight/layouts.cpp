// SPDX-License-Identifier: Apache-2.0
#include "lib/foresight/layouts.hpp"

#include "lib/core/error.hpp"

namespace pecia::foresight {

std::vector<job::Job::Parallel> layouts_of(int ranks, const job::Job::Parallel& parallel,
                                           const KeptDegrees& kept,
                                           const parallel::ModelShape& model) {
  PECIA_CHECK(ranks >= 1, "{} ranks", ranks);
  const auto is_kept = [](const auto& wanted, const auto& value) {
    return !wanted || *wanted == value;
  };
  std::vector<job::Job::Parallel> layouts;
  for (int dp = ranks; dp >= 1; --dp) {
    if (ranks % dp != 0 || !is_kept(kept.dp, dp)) continue;
    for (const auto& [degrees, prefill, decode] : parallel::legal_modes(ranks / dp, model)) {
      if (!is_kept(kept.cp, degrees.cp) || !is_kept(kept.sp, degrees.sp) ||
          !is_kept(kept.tp, degrees.tp))
        continue;
      if (!is_kept(parallel.prefill, prefill) || !is_kept(parallel.decode, decode)) continue;
      job::Job::Parallel layout = parallel;
      layout.dp = dp, layout.sp = degrees.sp, layout.tp = degrees.tp;
      layout.cp = {degrees.cp, false};
      if (degrees.ranks() > 1) layout.prefill = prefill, layout.decode = decode;
      const parallel::Setting setting{
          degrees, layout.prefill, layout.ring, layout.decode, layout.shift_threshold, {}, false};
      if (!parallel::refusal(setting, model)) layouts.push_back(layout);
    }
  }
  return layouts;
}

}  // namespace pecia::foresight
