// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/parallel/state_route.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "lib/base/core/error.hpp"
#include "lib/ranks/parallel/kv_map.hpp"

namespace pecia::parallel {
namespace {

/// Rows that a rank takes in: of all its sequences, and of the one with most, which follow each other.
struct RankRows {
  int64_t all = 0, most = 0;
};

std::map<int, RankRows> rows_by_rank(const std::vector<StateStep>& round) {
  std::map<int, RankRows> rows;
  for (const StateStep& step : round) {
    RankRows& of = rows[step.segment.rank];
    of.all += step.segment.rows.size();
    of.most = std::max(of.most, step.segment.rows.size());
  }
  return rows;
}

}  // namespace

std::vector<Segment> segments_of(const PassSequence& rows, const Team& team) {
  std::vector<Segment> all;
  for (int rank = 0; rank < team.size(); ++rank)
    for (const GlobalRange& range : rows_of(rows, team, rank)) all.push_back({rank, range});
  std::ranges::sort(all, {}, [](const Segment& of) { return of.rows.begin; });
  std::vector<Segment> joined;
  for (const Segment& segment : all) {
    if (!joined.empty() && joined.back().rank == segment.rank)
      joined.back().rows.end = segment.rows.end;
    else
      joined.push_back(segment);
  }
  return joined;
}

StateOrigin state_origin(const KvMap& map, const PassSequence& rows) {
  const auto parent = map.parent(rows.sequence);
  const bool begins = parent && map.length(*parent) == rows.first;
  return {map.state_holder(rows.sequence), begins ? *parent : rows.sequence};
}

StateRounds state_rounds(std::span<const PassSequence> pass, const Team& team,
                         std::span<const StateEnds> ends) {
  StateRounds rounds;
  for (size_t sequence = 0; sequence < pass.size(); ++sequence) {
    if (pass[sequence].count == 0) continue;
    int from = ends[sequence].from;
    size_t round = 0;
    std::vector<Segment> segments = segments_of(pass[sequence], team);
    const Segment last = segments.back();
    if (const int to = ends[sequence].to; to != last.rank)
      segments.push_back({to, {last.rows.end, last.rows.end}});
    for (const Segment& segment : segments) {
      if (round == rounds.size()) rounds.emplace_back();
      rounds[round++].push_back({sequence, segment, from});
      from = segment.rank;
    }
  }
  return rounds;
}

bool may_group(int64_t heads, int64_t key_heads, int64_t groups) {
  return groups >= 1 && heads % groups == 0 &&
         (key_heads % groups == 0 || (groups % key_heads == 0 && heads % key_heads == 0));
}

HeadGroup head_group(int64_t heads, int64_t key_heads, int64_t groups, int64_t group) {
  PECIA_CHECK(may_group(heads, key_heads, groups) && group >= 0 && group < groups,
              "group {} of {} of {} heads and {} key heads", group, groups, heads, key_heads);
  const int64_t count = heads / groups, first = group * count;
  return {first, count, first * key_heads / heads, std::max<int64_t>(1, key_heads / groups)};
}

/// Steps are put on a clock that ticks once for the rows of the shortest round: a round begins when the
/// rounds before it have ended, and the next group when the busiest rank is free.
std::vector<std::vector<WalkStep>> walk_order(const StateRounds& rounds, int groups) {
  std::vector<int64_t> most;  // rows of a rank, by round
  for (const auto& round : rounds) {
    most.push_back(0);
    for (const auto& [rank, rows] : rows_by_rank(round))
      most.back() = std::max(most.back(), rows.all);
  }
  int64_t unit = 0;
  for (const int64_t rows : most)
    if (rows > 0 && (unit == 0 || rows < unit)) unit = rows;
  const auto ticks = [&](int64_t rows) {
    return unit == 0 ? 1 : std::max<int64_t>(1, std::llround(double(rows) / double(unit)));
  };
  std::map<int, int64_t> busy;
  int64_t period = 1;
  for (const auto& round : rounds)
    for (const auto& [rank, rows] : rows_by_rank(round))
      period = std::max(period, busy[rank] += ticks(rows.all));
  std::map<int64_t, std::vector<WalkStep>> clock;
  int64_t begin = 0;
  for (int round = 0; round < std::ssize(rounds); ++round) {
    for (int group = 0; group < groups; ++group)
      clock[begin + group * period].push_back({round, group});
    begin += ticks(most[round]);
  }
  std::vector<std::vector<WalkStep>> order;
  for (auto& [time, steps] : clock) order.push_back(std::move(steps));
  return order;
}

int head_groups(const StateRounds& rounds, int64_t heads, int64_t key_heads,
                const WalkCosts& costs) {
  constexpr int64_t most_steps = 4096;  // a communicator's operations under way have a limit
  const bool travels = std::ranges::any_of(
      rounds, [](const auto& round) { return std::ranges::any_of(round, &StateStep::travels); });
  if (rounds.size() < 2 || !travels || costs.row_s <= 0) return 1;
  const auto seconds = [&](int64_t groups) {
    const double more = static_cast<double>(heads / groups) / costs.heads_at_once;
    double way = 0, busiest = 0;  // of one group
    std::map<int, double> busy;
    for (const auto& round : rounds) {
      double longest = 0;
      for (const auto& [rank, rows] : rows_by_rank(round)) {
        const double taken =
            costs.step_s + costs.row_s * std::max(static_cast<double>(rows.most),
                                                  more * static_cast<double>(rows.all));
        longest = std::max(longest, taken);
        busiest = std::max(busiest, busy[rank] += taken);
      }
      way += longest;
    }
    return way + static_cast<double>(groups - 1) * busiest;
  };
  int best = 1;
  double least = seconds(1);
  for (int64_t groups = 2; groups <= heads; ++groups) {
    if (!may_group(heads, key_heads, groups)) continue;
    if (groups * std::ssize(rounds) > most_steps) break;
    if (const double taken = seconds(groups); taken < least)
      least = taken, best = static_cast<int>(groups);
  }
  return best;
}

}  // namespace pecia::parallel
