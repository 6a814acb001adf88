// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Where the tokens of sparse attention's steps lie in the memory of one rank, and the calls and
/// messages that follow. It is made once for a pass, and all layers use it.
///
/// There are six arenas. In those of keys an entry is a key or a value of one head. In the others it
/// is a row of one KV head's group of query heads.
///
///     keys out, queries out      own tokens that leave, in the order of the messages
///     keys here, queries here    tokens that this rank attends, of all ranks
///     outputs here               results for `queries here`, for each level apart
///     home                       results for own rows that other ranks attended

#include <vector>

#include "lib/model/attention/attention_steps.hpp"
#include "lib/ranks/parallel/level_plan.hpp"

namespace pecia::attention {

struct LevelLayout {
  /// Entries [begin, begin + count) of an arena, to or from another rank.
  struct Move {
    int rank = 0;
    int64_t begin = 0, count = 0;
  };
  /// Tokens of a part here, in the order in which levels keep them, and where they go in an arena.
  struct Pick {
    int sequence = 0, part = 0;
    int64_t head = 0;
    parallel::RowRange tokens;
    int64_t to = 0;
  };
  /// Results for rows of a part here, which lie from entry `begin` of an arena on.
  struct Result {
    int sequence = 0, part = 0;
    int64_t head = 0;
    parallel::RowRange rows;
    int64_t begin = 0;
  };
  struct Step {
    int level = 2;
    std::vector<Pick> cached_out, rows_out, queries_out;     ///< into the arenas `out`
    std::vector<Pick> cached_here, rows_here, queries_here;  ///< into the arenas `here`
    std::vector<Move> keys_leaving, queries_leaving;         ///< of the arenas `out`
    std::vector<Move> keys_arriving, queries_arriving;       ///< of the arenas `here`
    std::vector<kernels::AttentionItem> items;               ///< over the arenas `here`
    std::vector<kernels::KeyRun> runs;
    double pairs = 0;                            ///< of a query row and a key
    std::vector<Move> outputs_leaving;           ///< of `outputs here`
    std::vector<Move> outputs_arriving;          ///< of `home`
    std::vector<Result> from_here, from_others;  ///< in `outputs here`, and in `home`
  };
  std::vector<Step> steps;
  int levels = 1;
  int64_t keys_out = 0, queries_out = 0, keys_here = 0, queries_here = 0, home = 0;
  /// Query positions of attention in `here`: every row sees every key of its item.
  std::vector<int64_t> positions;

  /// Entry of `outputs here` for an entry of `queries here`.
  int64_t output_at(int level, int64_t query) const { return (level - 2) * queries_here + query; }
};

/// The layout for a rank that has the parts `here` of the steps that parallel::level_steps gives it,
/// or parallel::head_parallel_steps where these are all parts.
LevelLayout lay_out(const parallel::Levels& levels, const parallel::LevelRule& rule,
                    const std::vector<parallel::LevelSequence>& sequences,
                    const std::vector<parallel::LevelStep>& steps, const parallel::PartsHere& here,
                    int64_t head_dim);

}  // namespace pecia::attention
