// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/parallel/state_route.hpp"

#include <algorithm>

#include "lib/base/core/error.hpp"
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

StateRounds state_rounds(std::span<const PassSequence> pass, const Team& team,
                         const std::function<int(const PassSequence&)>& holder) {
  StateRounds rounds;
  for (size_t sequence = 0; sequence < pass.size(); ++sequence) {
    int from = holder(pass[sequence]);
    size_t round = 0;
    for (const Segment& segment : segments_of(pass[sequence], team)) {
      if (round == rounds.size()) rounds.emplace_back();
      rounds[round++].push_back({sequence, segment, from});
      from = segment.rank;
    }
  }
  return rounds;
}

int computed_at(const KvMap& map, SequenceId sequence, int64_t position) {
  for (const SequenceId member : map.lineage(sequence))
    for (int instance = 0; instance < map.instances(); ++instance)
      for (int played = 0; played < map.virtual_ranks(); ++played)
        for (const StridedRange& range : map.ranges(member, instance, played))
          if (indices_between(range, position, position + 1).count > 0) return instance;
  fail<InvalidArgument>("nobody has computed the token at {} of sequence {}", position, sequence);
}

}  // namespace pecia::parallel
