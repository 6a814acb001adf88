// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How one attention call is cut into tasks. Depends on the arguments alone, not on the thread
/// count, so that results do not either.
///
/// Queries of an item are cut into tiles, keys into blocks; a task is (tile, KV head, part of the
/// blocks). Keys are split into several parts only when there are few tiles, as in decoding: then
/// the parts' results are merged afterwards. A plan costs as much as there are items, runs and
/// tasks; blocks are found by the tasks themselves (BlockWalk).

#include <cstdint>
#include <vector>

#include "kernels/api/key_runs.hpp"

namespace pecia::kernels::cpu {

inline constexpr int64_t block_keys = 128;

/// Up to block_keys keys, from key `offset` of run `run` onward, over as many runs as it takes.
struct KeyBlock {
  int64_t run, offset, num_keys;
  int64_t min_position, max_position;
  bool in_place;  ///< all its keys lie next to each other in memory
};

/// An item's keys, block by block.
class BlockWalk {
 public:
  /// From block `first` of the item on.
  BlockWalk(const AttentionArgs& args, const AttentionItem& item, int64_t first);
  /// The next block; the item has one.
  KeyBlock next();

 private:
  std::span<const KeyRun> runs_;
  int64_t head_dim_;
  int64_t run_, end_run_;  ///< of the next key, and of the item
  int64_t key_;            ///< of run_
};

enum class Sight { none, some, all };

/// Consecutive queries of one item, which share the passes over its keys.
struct QueryTile {
  int64_t item, first_row, num_rows;
  int64_t min_position, max_position;
  int64_t block_begin, block_end;  ///< of the item: all that any row sees a key of
  int64_t num_parts;               ///< into which these blocks are cut
  int64_t first_partial;           ///< of num_kv_heads · num_parts, when num_parts > 1

  Sight sight(const KeyBlock& block, int64_t window) const;
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

/// Kept between calls for its memory.
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

/// visit(run, offset, num_keys) for each piece of a block, in order.
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
