// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Levels of communication-efficient sparse attention (CSA). Near tokens lie on near ranks. A level
/// joins the ranks of a server, a rack, or all, and the further it reaches, the fewer tokens it
/// keeps. Each rank holds a part of every sequence: cached tokens, and new rows that come after
/// them. Where ranks share heads and not tokens (TP), each has all parts of its own heads, and a
/// part belongs to a rank by its place alone. Nothing here communicates.
/// Source: Communication-Efficient Sequence-Parallelism based Serving (CSPS), "proximity" and
/// "levels".

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
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
  /// The ranks of a segment in the order in which work is dealt to them. Ranks with the same part of
  /// the heads at the level below stay near each other, as most of what they need has come already.
  /// With Geometry::disjoint two segments take turns at being first: the queries of all parts then go
  /// equally far. Nested levels attend near pairs again, so there the first segment comes first.
  ///
  ///     two servers of two ranks     servers: 0 1 | 2 3     all: 0 2 3 1, or nested 0 2 1 3
  const std::vector<int>& deal_order(int level, int segment, Geometry geometry) const {
    return deal_orders_[static_cast<size_t>(geometry)].at(level - 1).at(segment);
  }
  bool operator==(const Levels& other) const { return segments_ == other.segments_; }

 private:
  using DealOrders = std::vector<std::vector<std::vector<int>>>;  ///< [level − 1][segment]
  DealOrders orders_of_work(Geometry geometry) const;

  std::vector<std::vector<int>> segments_;  ///< [level − 1][rank]
  std::array<DealOrders, 2> deal_orders_;   ///< by Geometry
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
  /// The same for keys, by KV head of the rank; empty: `drop` for each. Queries are dropped by
  /// `drop`, since all heads of a row are kept or none. Only with Geometry::disjoint.
  std::vector<double> key_drops = {};

  /// The share of its tokens that a level keeps: all at level 1, 1 − drop at level 2, and half of it
  /// at each further level. With drop 0 all levels keep everything.
  double kept(int level) const;
  /// The same of the keys of a KV head.
  double kept_keys(int level, int64_t head) const;
  bool operator==(const LevelRule&) const = default;
};

/// Which tokens a level keeps: those that matter, or any, as a yardstick of what choosing them is
/// worth.
enum class Selection { importance, random };

/// Numbers of micro-partitions of levels 2, 3, …; the last one is also that of all further levels.
using Micros = std::vector<int>;

inline int micro_at(const Micros& micros, int level) {
  return micros.at(std::min<size_t>(static_cast<size_t>(level) - 2, micros.size() - 1));
}
/// "4", or "8, 2" for level 2 and those above it.
std::string to_string(const Micros& micros);

/// Shares that are dropped [layer][KV head], or [layer][1] for all heads of a layer alike.
using LayerDrops = std::vector<std::vector<double>>;

/// The mean share over layers that drop anything at all: all but the first and the last one.
double mean_drop(const LayerDrops& layers);

/// How a job wants its prompts to be attended.
struct SparseSetting {
  LevelRule rule;
  std::optional<int> levels = {};     ///< absent: as the ranks' places say
  std::optional<Micros> micros = {};  ///< absent: one
  /// Tokens at the beginning of a sequence that all its rows see; absent: default_first_tokens, and
  /// with one level none. Only with Geometry::disjoint.
  std::optional<int64_t> first_tokens = {};
  Selection selection = Selection::importance;
  /// Of the layers with attention, in place of rule.drop, which then is their mean; empty: all layers
  /// drop the same. The first and the last layer drop nothing in any case.
  LayerDrops layer_drops = {};
  /// Whether it is counted how tokens share the attention that they receive (TokenShares).
  bool counts_shares = false;

  /// The rule of the layer with this place among `layers` layers with attention, at a rank with the KV
  /// heads [first_head, first_head + heads).
  LevelRule rule_of(int64_t place, int64_t layers, int64_t first_head, int64_t heads) const;

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

/// How many tokens of a part a level keeps: keys of a KV head, which are of cached tokens or of rows,
/// and rows as queries. The tokens are in an order in which those that a higher level keeps come
/// first, so they are the first ones.
int64_t kept_cached(const LevelRule& rule, int level, const PartTokens& part, int64_t head = 0);
int64_t kept_row_keys(const LevelRule& rule, int level, const PartTokens& part, int64_t head = 0);
int64_t kept_rows(const LevelRule& rule, int level, const PartTokens& part);

/// Whether queries of the part `query` see keys of the part `key` at a level from 2 on, for cached
/// keys and for keys of rows. A query's own part is no part of this: level 1 attends all of it, and
/// with Geometry::nested the rank that holds it attends what each level keeps.
struct Seen {
  bool cached = false, rows = false;
};
Seen seen_at(const Levels& levels, const LevelRule& rule, int level, int query, int key);

}  // namespace pecia::parallel
