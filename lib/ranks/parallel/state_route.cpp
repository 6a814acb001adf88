// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/parallel/state_route.hpp"

#include <algorithm>

#include "lib/ranks/parallel/kv_map.hpp"

namespace pecia::parallel {

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

}  // namespace pecia::parallel
