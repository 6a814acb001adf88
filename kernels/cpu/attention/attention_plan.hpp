// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Decides how one attention call is cut into tasks. The cut depends on the arguments alone, not on
/// the thread count, so the results do not depend on it either.
///
/// Queries of an item are cut into tiles, and its keys into blocks. A task is (tile, KV head, part
/// of the blocks). Keys are split into several parts only if there are few tiles, as in decoding.
/// Then the parts' results are merged afterwards. The time of a plan grows with the items, runs and
/// tasks. The tasks themselves find the blocks (BlockWalk).

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/api/key_runs.hpp"

namespace pecia::kernels::cpu {

inline constexpr int64_t block_keys = 128;

/// Queries, of `group` heads each, whose rows meet a block at a time (TileAttention): up to 28 rows,
/// two tiles of AVX-512's, whose scores, 14 KiB, stay in the first cache; one query at least.
constexpr int64_t queries_at_a_time(int64_t group) {
  return std::max<int64_t>(1, 28 / group);
}

/// Up to block_keys keys, from key `offset` of run `run` on. They may lie in several runs.
struct KeyBlock {
  int64_t run, offset, num_keys;
  int64_t min_position, max_position;
  bool in_place;  ///< all its keys lie next to each other in memory
};

/// Goes through an item's keys block by block.
class BlockWalk {
 public:
  /// Goes from block `first` of the item to its key `end`.
  BlockWalk(const AttentionArgs& args, const AttentionItem& item, int64_t first, int64_t end);
  /// Returns the next block, which the end may cut. There must be one.
  KeyBlock next();

 private:
  std::span<const KeyRun> runs_;
  int64_t head_dim_;
  int64_t run_, end_run_;  ///< run of the next key, and end of the item's runs
  int64_t key_;            ///< next key of run_
  int64_t left_;           ///< keys up to the end
};

enum class Sight { none, some, all };

/// Consecutive queries of one item, which share the passes over its keys.
struct QueryTile {
  int64_t item;  ///< the first of those that are merged
  int64_t first_row, num_rows;
  int64_t min_position, max_position;
  /// Blocks of the item, from the first to the last of which a row sees a key.
  int64_t block_begin, block_end;
  int64_t key_end;        ///< end of the item's keys that a row sees
  int64_t num_parts;      ///< parts into which these blocks are cut
  int64_t first_partial;  ///< the first of num_kv_heads · num_parts, if num_parts > 1

  Sight sight(const KeyBlock& block, Window window) const;
  int64_t part_begin(int64_t part) const {
    return block_begin + (block_end - block_begin) * part / num_parts;
  }
  int64_t partial(int64_t kv_head, int64_t part) const {
    return first_partial + kv_head * num_parts + part;
  }
};

struct AttentionTask {
  int64_t tile, kv_head, part;
  int64_t cost;
};

/// The tiles and tasks of a call. The object is kept between calls for its memory.
class AttentionPlan {
 public:
  void make(const AttentionArgs& args);

  const std::vector<QueryTile>& tiles() const { return tiles_; }
  const std::vector<AttentionTask>& tasks() const { return tasks_; }  ///< most expensive first
  int64_t tile_rows() const { return tile_rows_; }  ///< queries of the largest tile
  int64_t num_partials() const { return num_partials_; }

 private:
  void cut_queries(const AttentionArgs& args);
  void make_tasks(const AttentionArgs& args);

  std::vector<QueryTile> tiles_;
  std::vector<AttentionTask> tasks_;
  int64_t tile_rows_ = 0;
  int64_t num_partials_ = 0;
};

/// Calls visit(run, offset, num_keys) for each piece of a block, in order.
template <typename Visit>
void for_each_piece(const AttentionArgs& args, const KeyBlock& block, const Visit& visit) {
  int64_t run = block.run, offset = block.offset;
  for (int64_t left = block.num_keys; left > 0; ++run, offset = 0) {
    const int64_t count = std::min(left, args.runs[run].num_keys - offset);
    if (count > 0) visit(args.runs[run], offset, count);
    left -= count;
  }
}

}  // namespace pecia::kernels::cpu
