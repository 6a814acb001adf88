// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Levels of communication-efficient sparse attention (CSA). Near tokens lie on near ranks. A level
/// joins the ranks of a server, a rack, or all, and the further it reaches, the fewer tokens it
/// keeps. Each rank holds a part of every sequence: cached tokens, and new rows that come after
/// them. Where ranks share heads and not tokens (TP), each has all parts of its own heads, and a
/// part belongs to a rank by its place alone. Nothing here communicates.
/// Source: Communication-Efficient Sequence-Parallelism based Serving (CSPS), "proximity" and
/// "levels".

#include <cstdint>
#include <optional>
#include <vector>

#include "lib/ranks/parallel/geometry.hpp"

namespace pecia::parallel {

/// The segments of each level. Level 1 has each rank alone. Each higher level joins neighbouring
/// segments of the level below.
class Levels {
 public:
  /// `joins`: the levels from 2 on, each with the segment of every rank. Throws InvalidArgument
  /// unless segments are numbered from 0 in the order of the ranks, and each is made of whole
  /// segments of the level before.
  Levels(int ranks, std::vector<std::vector<int>> joins);

  int count() const { return static_cast<int>(segments_.size()); }
  int ranks() const { return static_cast<int>(segments_.front().size()); }
  /// Levels count from 1.
  int segment(int level, int rank) const { return segments_.at(level - 1).at(rank); }
  bool together(int level, int a, int b) const { return segment(level, a) == segment(level, b); }
  std::vector<int> members(int level, int segment) const;
  /// The number of ranks of the level's largest segment.
  int most_ranks(int level) const;
  /// The ranks of a segment in the order in which work is dealt to them. Ranks that work on the same
  /// part of the heads at the level below stay as near to it as can be, so that most of what they
  /// need has come already.
  ///
  ///     two servers of two ranks     servers: 0 1 | 2 3     all: 0 2 1 3
  const std::vector<int>& deal_order(int level, int segment) const {
    return deal_orders_.at(level - 1).at(segment);
  }
  bool operator==(const Levels& other) const { return segments_ == other.segments_; }

 private:
  std::vector<std::vector<int>> segments_;                  ///< [level − 1][rank]
  std::vector<std::vector<std::vector<int>>> deal_orders_;  ///< [level − 1][segment]
};

/// The levels that follow from the ranks' places: each rank alone, servers, racks, all; without those
/// that join nothing. `servers` and `racks` have a label for each rank; segments are runs of equal
/// labels. `wanted`: the number of levels, made of the first ones and all, or with further
/// ones between those that join most. A level joins at least two segments of the one before, so
/// there may be fewer than wanted.
///
///     4 servers of 2 ranks in one rack              1 rank, server, all
///     the same, 4 wanted                            1 rank, server, two servers, all
///     the same, 2 wanted                            1 rank, all
///     the same, 1 wanted                            1 rank
Levels levels_of(const std::vector<int>& servers, const std::vector<int>& racks,
                 std::optional<int> wanted = {});

/// What levels keep and attend to.
struct LevelRule {
  Geometry geometry = Geometry::disjoint;
  double drop = 0;  ///< share of the tokens that level 2 drops, from 0 to below 1

  /// The share of its tokens that a level keeps: all at level 1, 1 − drop at level 2, and half of it
  /// at each further level. With drop 0 all levels keep everything.
  double kept(int level) const;
};

/// Which tokens a level keeps: those that matter, or any, as a yardstick of what choosing them is
/// worth.
enum class Selection { importance, random };

/// How a job wants its prompts to be attended.
struct SparseSetting {
  LevelRule rule;
  std::optional<int> levels;  ///< absent: as the ranks' places say
  std::optional<int> micro;   ///< micro-partitions of a level; absent: one
  /// Tokens at the beginning of a sequence that all its rows see; absent: default_first_tokens, and
  /// with one level none. Only with Geometry::disjoint.
  std::optional<int64_t> first_tokens = {};
  Selection selection = Selection::importance;

  static constexpr int64_t default_first_tokens = 16;

  /// Fewer new rows than this on each rank are no work for levels: most of them are a question's.
  static constexpr int64_t least_rows = 128;
};

/// Tokens of a sequence at one rank.
struct PartTokens {
  int64_t cached = 0;           ///< before this pass
  int64_t rows = 0;             ///< new ones, which come after all cached tokens of all ranks
  int64_t last = 0, first = 0;  ///< of these rows, the last and first ones, which all levels keep
  int64_t first_cached = 0;     ///< of the cached tokens, the first ones, which all levels keep
  bool operator==(const PartTokens&) const = default;
};

/// A sequence of a pass: its tokens by rank. The rows of a rank come before the rows of the next.
using LevelSequence = std::vector<PartTokens>;

/// Parts into which a replica cuts a sequence: one for each rank of CP, or of TP where CP is 1.
constexpr int level_parts(int cp, int tp) {
  return cp > 1 ? cp : tp;
}

/// The parts that a rank has: its own, or all of them where ranks share heads.
struct PartsHere {
  int first = 0, count = 1;

  int end() const { return first + count; }
  bool has(int part) const { return first <= part && part < end(); }
};

/// How many tokens of a part a level keeps. The tokens are in an order in which those that a higher
/// level keeps come first, so they are the first ones.
int64_t kept_cached(const LevelRule& rule, int level, const PartTokens& part);
int64_t kept_rows(const LevelRule& rule, int level, const PartTokens& part);

/// Whether queries of the part `query` see keys of the part `key` at a level from 2 on, for cached
/// keys and for keys of rows. A query's own part is no part of this: level 1 attends all of it, and
/// with Geometry::nested the rank that holds it attends what each level keeps.
struct Seen {
  bool cached = false, rows = false;
};
Seen seen_at(const Levels& levels, const LevelRule& rule, int level, int query, int key);

}  // namespace pecia::parallel
