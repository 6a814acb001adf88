// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Where the tokens of sparse attention's steps lie in the memory of one rank, and the calls and
/// messages that follow. It is made once for a pass, and all layers use it.
///
/// There are three arenas. In the arena of keys an entry is a key or a value of one head. In the others
/// it is a row of one KV head's group of query heads.
///
///     keys here, queries here    tokens that this rank attends, of all ranks
///     outputs here               results for `queries here`, for each level apart
///
/// What travels in a step goes to each rank in one message.

#include <vector>

#include "lib/model/attention/attention_steps.hpp"
#include "lib/ranks/parallel/level_plan.hpp"

namespace pecia::attention {

struct LevelLayout {
  /// Entries [begin, begin + count) of an arena.
  struct Entries {
    int64_t begin = 0, count = 0;
  };
  /// Tokens of a part here, in the order in which levels keep them, and where they go in an arena or
  /// a message.
  struct Pick {
    int sequence = 0, part = 0;
    int64_t head = 0;
    parallel::RowRange tokens;
    int64_t to = 0;
  };
  /// Own tokens that go to another rank: keys of cached tokens, and keys of rows.
  struct TokensOut {
    int rank = 0;
    std::vector<Pick> cached, rows, queries;
    int64_t num_keys = 0, num_queries = 0;
  };
  /// Tokens that come from another rank, in the order of its message, into the arenas.
  struct TokensIn {
    int rank = 0;
    std::vector<Entries> keys, queries;
    int64_t num_keys = 0, num_queries = 0;
  };
  /// Results for another rank's rows, of `outputs here`.
  struct ResultsOut {
    int rank = 0;
    std::vector<Entries> outputs;
    int64_t count = 0;
  };
  /// Results for own rows, in the order of the message from another rank.
  struct ResultsIn {
    int rank = 0;
    std::vector<Pick> rows;  ///< from Pick::to of the message on
    int64_t count = 0;
  };
  struct Step {
    int level = 2;
    std::vector<TokensOut> tokens_out;                       ///< one for each rank that gets any
    std::vector<TokensIn> tokens_in;                         ///< one for each rank that gives any
    std::vector<Pick> cached_here, rows_here, queries_here;  ///< into the arenas
    std::vector<kernels::AttentionItem> items;               ///< over the arenas
    std::vector<kernels::KeyRun> runs;
    double pairs = 0;  ///< of a query row and a key
    std::vector<Pick>
        from_here;  ///< own rows whose results are in `outputs here`, from Pick::to on
    std::vector<ResultsOut> results_out;
    std::vector<ResultsIn> results_in;
  };
  std::vector<Step> steps;
  int levels = 1;
  int64_t keys_here = 0, queries_here = 0;  ///< entries of the arenas
  /// Query positions of attention in the arenas: every row sees every key of its item.
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
