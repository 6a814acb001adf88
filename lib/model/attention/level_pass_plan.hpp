// SPDX-License-Identifier: Apache-2.0
#pragma once
/// All that a rank does in a layer of a pass by levels, as a value: the layout of the steps, and
/// attention of own rows that other ranks have no part in. It follows from numbers of tokens.

#include <vector>

#include "lib/model/attention/level_sequence.hpp"
#include "lib/model/attention/sparse_totals.hpp"

namespace pecia::attention {

/// Attention of own rows of one KV head each to keys that are copied for it.
struct OwnAttention {
  AttentionCall call;
  int64_t keys = 0, queries = 0;                ///< entries
  std::vector<LevelLayout::Pick> cached, rows;  ///< own keys
  std::vector<LevelLayout::Pick> asking;        ///< rows
  std::vector<LevelLayout::Pick> merged;        ///< of these, the rows whose results count
};

struct LevelPassPlan {
  parallel::LevelRule rule;
  LevelLayout layout;
  LayerCount count;
  std::vector<OwnAttention> inner;  ///< Geometry nested: kept tokens of a part, by level − 2
  /// All rows of other parts than the sinks', and all sinks. Results count for rows that do not see
  /// them at any level; the others' log-sums say what these need.
  OwnAttention sinks;
  double need_pairs = 0;  ///< of rows whose results do not count
};

/// What plans of a pass have in common. All references outlive them.
struct LevelPass {
  const parallel::Levels& levels;
  const std::vector<SequenceParts>& sequences;
  parallel::PartsHere here;
  const CountedShape& shape;
  const parallel::Micros& micros;
  int ranks = 1, rank = 0;  ///< of the ring: one, if the ranks share heads

  int64_t group() const { return shape.num_heads / shape.kv.num_kv_heads; }
};

/// The plan without sinks.
LevelPassPlan plan_levels(const LevelPass& pass, const parallel::LevelRule& rule);

/// Adds attention of rows to sinks of another part, whose keys each rank gets. `most`: sinks that any
/// sequence may have.
void plan_sinks(const LevelPass& pass, int64_t most, LevelPassPlan& plan);

}  // namespace pecia::attention
