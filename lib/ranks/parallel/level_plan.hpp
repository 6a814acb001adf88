// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The schedule of sparse attention by levels, as a value: which rank attends what, and what travels
/// when. Everything follows from numbers of tokens, so every rank makes the same schedule, and a
/// phantom knows what it sends. Which tokens these are is decided by the rank that holds them.
///
/// Level 1 is attention of each rank to its own part, and nothing travels for it. At a higher level
/// the work of a segment is (KV head, sequence, part, query row) in this order. It is dealt to the
/// segment's ranks in stretches of equal numbers of query-key pairs. So any number of ranks shares
/// any number of heads. If the ranks divide the heads, each gets whole heads, as in Ulysses.
///
/// Where ranks share heads, each has all parts of its own ones. It attends all work of its heads,
/// and nothing travels (head_parallel_steps).
///
/// A rank's stretch at a level is cut into micro-partitions. These are steps: while one is attended,
/// the tokens of later ones and the outputs of earlier ones travel. Near levels come first. A token
/// that several steps of a rank need goes there once, for the first of them.
/// Source: CSPS, "levels", "three-phase pipelining" and "SP-TP".

#include <functional>

#include "lib/ranks/parallel/levels.hpp"
#include "lib/ranks/parallel/sharding.hpp"

namespace pecia::parallel {

/// Query rows of one KV head of a part, which one rank attends at a level. Tokens are numbered in the
/// order in which levels keep them (kept_rows).
struct LevelTask {
  int sequence = 0;
  int64_t head = 0;  ///< KV head, among those of the rank
  int part = 0;      ///< rank whose rows they are
  RowRange rows;
  bool operator==(const LevelTask&) const = default;
};

/// Tokens of one KV head that go from one rank to another: keys and values, and queries of the
/// head's group.
struct LevelPiece {
  int sequence = 0;
  int64_t head = 0;
  RowRange cached, rows;          ///< keys and values of cached tokens, and of rows
  std::vector<RowRange> queries;  ///< rows

  bool empty() const { return cached.size() == 0 && rows.size() == 0 && queries.empty(); }
};

struct LevelStep {
  int level = 2;
  std::vector<LevelTask> tasks;                   ///< of this rank
  std::vector<std::vector<LevelPiece>> arriving;  ///< by part; from a part of its own: copied here
  std::vector<std::vector<LevelPiece>> leaving;   ///< by rank; none to itself
  std::vector<std::vector<LevelTask>> elsewhere;  ///< by rank: its tasks of this rank's rows
};

/// Returns the steps of a rank, near levels first. All ranks have as many. `micro` says into how many
/// micro-partitions a level is cut, at least one. `kv_heads` are those of each rank. Throws
/// InvalidArgument if a sequence lacks a part.
std::vector<LevelStep> level_steps(const Levels& levels, const LevelRule& rule,
                                   const std::vector<LevelSequence>& sequences, int64_t kv_heads,
                                   const std::function<int(int level)>& micro, int rank);

/// Returns the steps of a rank that has all parts of its heads: one for each level, in which it
/// attends all work. What it attends comes from its own parts (`arriving`), each token once.
std::vector<LevelStep> head_parallel_steps(const Levels& levels, const LevelRule& rule,
                                           const std::vector<LevelSequence>& sequences,
                                           int64_t kv_heads);

/// Keys and values of a KV head of a part that a task at a level attends: the first `cached` tokens
/// and the first `rows` rows in the order in which levels keep them.
struct SeenKeys {
  int64_t cached = 0, rows = 0;
  int64_t size() const { return cached + rows; }
};
SeenKeys keys_seen(const Levels& levels, const LevelRule& rule, int level,
                   const LevelSequence& sequence, int query_part, int key_part, int64_t head = 0);

}  // namespace pecia::parallel
