// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How the states of recurrent layers go through a pass. A state goes through its sequence's rows in
/// the order of their positions, from rank to rank, and stays where the last row is. So each row
/// sees the same numbers on any number of ranks, and what travels does not depend on lengths.
///
/// Where teams change, the pass in which keys of the sequence leave that rank takes the state on to
/// one that keeps some (KvMap::state_holder). So the state is always on a rank of the next team,
/// which has all holders of keys, and never travels between teams. Nothing here communicates.

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

/// Whether the map may be shortened to where these rows begin: after an answer's next token they were
/// drafted. The state before them is kept so long.
inline bool may_be_shortened(const PassSequence& rows) {
  return !rows.is_shared() && rows.count > 1;
}

/// A state that goes through a segment.
struct StateStep {
  static constexpr int nowhere = -1;

  size_t sequence = 0;  ///< index among the sequences of the pass
  Segment segment;      ///< without rows where the state only moves to the rank
  int from = nowhere;   ///< the rank that has the state before; nowhere: it is zero

  bool travels() const { return from != nowhere && from != segment.rank; }
};

/// The state with which a sequence goes on in a pass.
struct StateOrigin {
  int32_t instance = StateStep::nowhere;  ///< that has it; nowhere: it is zero
  SequenceId sequence = 0;                ///< whose it is: its own, or its parent's
};

/// The map does not have the rows yet.
StateOrigin state_origin(const KvMap& map, const PassSequence& rows);

/// Where a sequence's state is before a pass, and after it: places in the ring.
struct StateEnds {
  int from = StateStep::nowhere, to = 0;
};

/// The first segments of all sequences of a pass, then the second ones, and so on: every rank does
/// the steps of a round at once. `ends`: by sequence of the pass.
using StateRounds = std::vector<std::vector<StateStep>>;
StateRounds state_rounds(std::span<const PassSequence> pass, const Team& team,
                         std::span<const StateEnds> ends);

/// Heads of a recurrence whose states go through a pass together, and the key heads that they read.
/// Heads do not depend on each other. So a rank sends the states of one group on while it computes
/// the next group, and ranks work at the same time.
struct HeadGroup {
  int64_t first_head = 0, heads = 0, first_key_head = 0, key_heads = 0;
  bool operator==(const HeadGroup&) const = default;
};

/// Whether heads can be cut into so many equal groups that each reads key heads of its own, or a part
/// of one key head's heads.
bool may_group(int64_t heads, int64_t key_heads, int64_t groups);
/// The group's heads, where they may be grouped so.
HeadGroup head_group(int64_t heads, int64_t key_heads, int64_t groups, int64_t group);

/// A group's part of a round.
struct WalkStep {
  int round = 0, group = 0;
  bool operator==(const WalkStep&) const = default;
};

/// All parts of all rounds in the order in which every rank takes them, so that no rank waits for
/// another that waits for it. The transfers before the steps of one entry start together. A step follows
/// those of its group in the rounds before. With rows in equal parts no rank has two steps of an entry.
///
///     balanced on 2 ranks, 2 groups         rank 0         rank 1
///     (round 0, group 0)                    (0, 0)
///     (1, 0)                                               (1, 0), two segments
///     (0, 1)                                (0, 1)
///     (2, 0) (1, 1)                         (2, 0)         (1, 1)
///     (2, 1)                                (2, 1)
std::vector<std::vector<WalkStep>> walk_order(const StateRounds& rounds, int groups);

/// What a state's way through a pass takes. The same on all ranks of the ring.
struct WalkCosts {
  double row_s = 0;          ///< of a row and up to heads_at_once heads; 0: not known
  double heads_at_once = 1;  ///< more heads take so much longer
  double step_s = 0;         ///< of a round and a group beside: the op's start and a message
};

/// The number of groups with which a pass ends first; 1 where nothing is known or gained. With G groups
/// whose steps take as long as their rows and heads, N ranks and a balanced order, a way of T seconds
/// takes T/N · (1 + (N − 1)/G).
int head_groups(const StateRounds& rounds, int64_t heads, int64_t key_heads,
                const WalkCosts& costs);

}  // namespace pecia::parallel
