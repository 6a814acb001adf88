// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How the states of recurrent layers go through a pass. A state goes through its sequence's rows in
/// the order of their positions, from rank to rank, and stays where the last row is. So each row
/// sees the same numbers on any number of ranks, and what travels does not depend on lengths.
/// Nothing here communicates.

#include <functional>
#include <span>
#include <vector>

#include "lib/ranks/parallel/team.hpp"

namespace pecia::parallel {

class KvMap;

/// Rows of a sequence next to each other, on one rank of the team's ring.
struct Segment {
  int rank = 0;
  GlobalRange rows;
  bool operator==(const Segment&) const = default;
};

/// Returns the rows of a pass in the order of positions. Neighbours on one rank are one segment.
///
///     first 10, 8 tokens, balanced on 2 ranks     0: [10,12)  1: [12,16)  0: [16,18)
std::vector<Segment> segments_of(const PassSequence& rows, const Team& team);

/// A state that goes through a segment.
struct StateStep {
  static constexpr int nowhere = -1;

  size_t sequence = 0;  ///< index among the sequences of the pass
  Segment segment;
  int from = nowhere;  ///< the rank that has the state before; nowhere: it is zero

  bool travels() const { return from != nowhere && from != segment.rank; }
};

/// The first segments of all sequences of a pass, then the second ones, and so on: every rank does
/// the steps of a round at once. `holder` is the place in the ring of the rank that has a sequence's
/// state, or StateStep::nowhere.
using StateRounds = std::vector<std::vector<StateStep>>;
StateRounds state_rounds(std::span<const PassSequence> pass, const Team& team,
                         const std::function<int(const PassSequence&)>& holder);

/// The instance that has computed the token at a position of the sequence, which may be its
/// parent's, and so has the state after it until the sequence goes on. Tokens stay where they are
/// computed: no pass of the sequence has placed any. Throws InvalidArgument if nobody has.
int computed_at(const KvMap& map, SequenceId sequence, int64_t position);

}  // namespace pecia::parallel
