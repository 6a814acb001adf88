// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/parallel/team.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "lib/base/core/error.hpp"

namespace pecia::parallel {

std::optional<int> Team::index_of(int instance) const {
  const auto found = std::find(instances.begin(), instances.end(), instance);
  if (found == instances.end()) return {};
  return static_cast<int>(found - instances.begin());
}

std::string Team::text() const {
  return fmt::format("instance{} {}", size() == 1 ? "" : "s", fmt::join(instances, ", "));
}

Team team_of_all(int instances, AttentionExchange ring, Sharding sharding) {
  Team team{std::vector<int32_t>(instances), 0, ring, sharding};
  std::iota(team.instances.begin(), team.instances.end(), 0);
  return team;
}

const Placement* TeamPass::placement(SequenceId sequence) const {
  for (const Placement& each : placements)
    if (each.sequence == sequence) return &each;
  return nullptr;
}

void check_teams(const std::vector<TeamPass>& teams, int instances) {
  std::vector<bool> taken(instances);
  for (const auto& [team, rows, placements] : teams) {
    PECIA_CHECK(placements.empty() || (team.ring == AttentionExchange::pass_kv && team.size() > 1),
                "keys of sequence {} are to be placed, but they do not travel in the team of {}",
                placements.front().sequence, team.text());
    PECIA_CHECK(team.holders >= 0 && team.workers() >= 1, "a team of {} with {} holders",
                team.text(), team.holders);
    for (const int32_t instance : team.instances) {
      PECIA_CHECK(0 <= instance && instance < instances, "a team has instance {}, there are {}",
                  instance, instances);
      PECIA_CHECK(!taken[instance], "instance {} is in two places of a pass's teams", instance);
      taken[instance] = true;
    }
  }
}

std::optional<size_t> team_of(const std::vector<TeamPass>& teams, int instance) {
  for (size_t team = 0; team < teams.size(); ++team)
    if (teams[team].team.index_of(instance)) return team;
  return {};
}

std::vector<GlobalRange> rows_of(const PassSequence& sequence, const Team& team, int index) {
  if (index >= team.workers()) return {};
  return rows_of(sequence, team.workers(), index);
}

int64_t num_rows(const std::vector<PassSequence>& pass, const Team& team, int index) {
  return index < team.workers() ? num_rows(pass, team.workers(), index) : 0;
}

}  // namespace pecia::parallel
