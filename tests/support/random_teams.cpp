// SPDX-License-Identifier: Apache-2.0
#include "tests/support/random_teams.hpp"

#include <algorithm>
#include <set>

namespace pecia::test {

using parallel::AttentionExchange;
using parallel::PassSequence;
using parallel::SequenceId;
using parallel::TeamPass;

std::vector<TeamPass> RandomTeams::draw(const parallel::KvMap& map,
                                        const std::vector<SequenceId>& sequences) {
  std::vector<PassSequence> rows;
  for (const SequenceId sequence : sequences) {
    if (number(0, 5) == 0) continue;  // it waits
    const int64_t first = map.length(sequence);
    rows.push_back({sequence, first, first == 0 || number(0, 1) == 0 ? number(1, 13) : 1});
  }
  return place(map, std::move(rows), Apart::left_out);
}

std::vector<TeamPass> RandomTeams::place(const parallel::KvMap& map, std::vector<PassSequence> rows,
                                         Apart apart) {
  struct Drawn {
    std::set<int> instances;
    std::vector<PassSequence> rows;
  };
  std::vector<Drawn> drawn;
  std::vector<int> idle(instances_);
  for (int instance = 0; instance < instances_; ++instance) idle[instance] = instance;
  std::shuffle(idle.begin(), idle.end(), random_);
  std::shuffle(rows.begin(), rows.end(), random_);
  for (const PassSequence& sequence : rows) {
    Drawn team{{}, {sequence}};
    for (const int holder : map.holders(sequence.sequence)) team.instances.insert(holder);
    if (team.instances.empty() && !idle.empty()) team.instances.insert(idle.back());
    const auto meets = [&](const Drawn& other) {
      return team.instances.empty() ||
             std::any_of(other.instances.begin(), other.instances.end(),
                         [&](int instance) { return team.instances.contains(instance); });
    };
    if (apart == Apart::left_out && !team.instances.empty() &&
        std::count_if(drawn.begin(), drawn.end(), meets) > 1)
      continue;
    const bool joins = !drawn.empty() && number(0, 7) == 0;
    if (team.instances.empty() || joins) {
      const Drawn& host = drawn[number(0, std::ssize(drawn) - 1)];
      team.instances.insert(host.instances.begin(), host.instances.end());
    }
    for (auto other = drawn.begin(); other != drawn.end();)
      if (meets(*other)) {
        team.instances.insert(other->instances.begin(), other->instances.end());
        team.rows.insert(team.rows.begin(), other->rows.begin(), other->rows.end());
        other = drawn.erase(other);
      } else {
        ++other;
      }
    std::erase_if(idle, [&](int instance) { return team.instances.contains(instance); });
    drawn.push_back(std::move(team));
  }
  for (const int instance : idle)
    if (!drawn.empty() && number(0, 2) == 0)
      drawn[number(0, std::ssize(drawn) - 1)].instances.insert(instance);

  std::vector<TeamPass> teams;
  for (Drawn& each : drawn) {
    parallel::Team team{{each.instances.begin(), each.instances.end()}};
    std::shuffle(team.instances.begin(), team.instances.end(), random_);
    team.holders = number(0, 1) == 0 ? 0 : static_cast<int32_t>(number(0, team.size() - 1));
    constexpr AttentionExchange rings[] = {AttentionExchange::pass_kv, AttentionExchange::pass_q,
                                           AttentionExchange::broadcast_q};
    team.ring = rings[number(0, 2)];
    for (PassSequence& sequence : each.rows)
      if (sequence.count == 1 || number(0, 1) == 0)
        sequence.owner = static_cast<int32_t>(number(0, team.workers() - 1));
    teams.push_back({std::move(team), std::move(each.rows)});
  }
  return teams;
}

void RandomTeams::keep_some(const parallel::KvMap& map, std::vector<TeamPass>& teams) {
  for (TeamPass& each : teams) {
    if (each.team.ring != AttentionExchange::pass_kv || each.team.size() == 1) continue;
    for (const PassSequence& rows : each.rows) {
      if (number(0, 1) == 0) continue;
      parallel::Placement placement{rows.sequence, {}, static_cast<uint8_t>(number(0, 1))};
      for (const int32_t instance : each.team.instances)
        if (number(0, 1) == 0) placement.shares.push_back({instance, 0});
      if (placement.shares.empty())
        placement.shares.push_back({each.team.instances[number(0, each.team.size() - 1)], 0});
      std::shuffle(placement.shares.begin(), placement.shares.end(), random_);
      int64_t tokens = rows.count;
      if (placement.gathers != 0)
        for (const int32_t instance : each.team.instances)
          if (!placement.has_share(instance)) tokens += map.held(rows.sequence, instance);
      for (parallel::KeptShare& share : placement.shares)
        tokens -= share.tokens = number(0, tokens);
      placement.shares.front().tokens += tokens;
      each.placements.push_back(std::move(placement));
    }
  }
}

}  // namespace pecia::test
