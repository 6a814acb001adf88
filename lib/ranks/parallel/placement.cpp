// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/parallel/placement.hpp"

#include <algorithm>

#include "lib/base/core/error.hpp"
#include "lib/ranks/parallel/team.hpp"

namespace pecia::parallel {

bool Placement::has_share(int instance) const {
  return std::any_of(shares.begin(), shares.end(),
                     [&](const KeptShare& share) { return share.instance == instance; });
}

std::vector<KeptRun> kept_runs(const Placement& placement, const Team& team,
                               const std::vector<TravellingTokens>& travelling, int instance) {
  int64_t begin = 0, end = 0, dealt = 0;  // of the instance's share among the tokens dealt
  for (const KeptShare& share : placement.shares) {
    const auto same = [&](const KeptShare& other) { return other.instance == share.instance; };
    PECIA_CHECK(team.index_of(share.instance) && share.tokens >= 0 &&
                    std::count_if(placement.shares.begin(), placement.shares.end(), same) == 1,
                "sequence {} keeps {} tokens on instance {}, its team is {}", placement.sequence,
                share.tokens, share.instance, team.text());
    if (share.instance == instance) begin = dealt, end = dealt + share.tokens;
    dealt += share.tokens;
  }
  std::vector<KeptRun> kept;
  int64_t before = 0;
  for (int source = 0; source < team.size(); ++source) {
    const TravellingTokens& tokens = travelling.at(source);
    const bool leaves = placement.gathers != 0 && !placement.has_share(team.instances[source]);
    const int64_t first = leaves ? 0 : tokens.cached, count = tokens.count - first;
    const int64_t from = std::max(begin, before), to = std::min(end, before + count);
    if (from < to) kept.push_back({source, {first + from - before, to - from}});
    before += count;
  }
  PECIA_CHECK(before == dealt, "sequence {} has {} tokens to keep, the shares have {}",
              placement.sequence, before, dealt);
  return kept;
}

}  // namespace pecia::parallel
