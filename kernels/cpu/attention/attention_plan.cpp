// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention/attention_plan.hpp"

#include <algorithm>

#include "kernels/api/measured_constants.hpp"

namespace pecia::kernels::cpu {
namespace {

// Rows of a tile's matrices, queries × heads of a group: q, scores and out of a head_dim of 128
// take 196 KiB each, and packing a block of keys costs a tenth of multiplying it.
MeasuredConstant tile_matrix_rows("attention.tile_rows", 384, {192, 768});
// Tasks that keep every thread of a large host busy, and the least number of blocks worth a task.
constexpr int64_t enough_tasks = 128;
constexpr int64_t least_part_blocks = 16;

}  // namespace

Sight QueryTile::sight(const KeyBlock& block, Window window) const {
  if (block.min_position > max_position) return Sight::none;
  if (block.max_position < window.first_seen(min_position)) return Sight::none;
  const bool past = block.max_position <= min_position;
  const bool near = block.min_position >= window.first_seen(max_position);
  return past && near ? Sight::all : Sight::some;
}

BlockWalk::BlockWalk(const AttentionArgs& args, const AttentionItem& item, int64_t first,
                     int64_t end)
    : runs_(args.runs),
      head_dim_(args.q.size(2)),
      end_run_(item.first_run + item.num_runs),
      left_(end - first * block_keys) {
  const KeyPlace place = place_of(runs_of(args, item), first * block_keys);
  run_ = item.first_run + place.run;
  key_ = place.key;
}

KeyBlock BlockWalk::next() {
  while (key_ == runs_[run_].num_keys) ++run_, key_ = 0;
  const int64_t first = runs_[run_].position_of(key_);
  const int64_t most_keys = std::min(block_keys, left_);
  KeyBlock block{run_, key_, 0, first, first, true};
  for (;;) {
    const KeyRun& run = runs_[run_];
    const int64_t count = std::min(most_keys - block.num_keys, run.num_keys - key_);
    if (count > 0) {
      block.min_position = std::min(block.min_position, run.position_of(key_));
      block.max_position = std::max(block.max_position, run.position_of(key_ + count - 1));
    }
    block.num_keys += count;
    key_ += count;
    left_ -= count;
    if (block.num_keys == most_keys || run_ + 1 == end_run_) return block;
    const KeyRun& next = runs_[++run_];
    key_ = 0;
    block.in_place = block.in_place && next.head_stride == run.head_stride &&
                     next.offset == run.offset + run.num_keys * head_dim_;
  }
}

void AttentionPlan::make(const AttentionArgs& args) {
  cut_queries(args);
  make_tasks(args);
}

void AttentionPlan::cut_queries(const AttentionArgs& args) {
  tiles_.clear();
  tile_rows_ = 0;
  const int64_t group = args.q.size(1) / args.num_kv_heads;
  const int64_t most_rows = std::max<int64_t>(1, tile_matrix_rows / group);
  for (size_t i = 0; i < args.items.size(); i += static_cast<size_t>(args.merged)) {
    const AttentionItem& item = args.items[i];
    const int64_t num_tiles = (item.num_rows + most_rows - 1) / most_rows;
    for (int64_t t = 0; t < num_tiles; ++t) {
      QueryTile tile{};
      tile.item = static_cast<int64_t>(i);
      tile.first_row = item.first_row + item.num_rows * t / num_tiles;
      tile.num_rows = item.first_row + item.num_rows * (t + 1) / num_tiles - tile.first_row;
      const auto positions = args.query_positions.subspan(tile.first_row, tile.num_rows);
      tile.min_position = *std::min_element(positions.begin(), positions.end());
      tile.max_position = *std::max_element(positions.begin(), positions.end());
      const KeyRange seen =
          seen_keys(runs_of(args, item), tile.min_position, tile.max_position, args.window);
      tile.block_begin = seen.begin / block_keys;
      tile.block_end = (seen.end + block_keys - 1) / block_keys;
      tile.key_end = seen.end;
      tile_rows_ = std::max(tile_rows_, tile.num_rows);
      tiles_.push_back(tile);
    }
  }
}

void AttentionPlan::make_tasks(const AttentionArgs& args) {
  tasks_.clear();
  num_partials_ = 0;
  const int64_t whole_tasks = static_cast<int64_t>(tiles_.size()) * args.num_kv_heads;
  for (size_t t = 0; t < tiles_.size(); ++t) {
    QueryTile& tile = tiles_[t];
    const int64_t most_parts = args.row_invariant == RowInvariant::yes
                                   ? 1
                                   : (tile.block_end - tile.block_begin) / least_part_blocks;
    tile.num_parts = std::clamp<int64_t>((enough_tasks + whole_tasks - 1) / whole_tasks, 1,
                                         std::max<int64_t>(1, most_parts));
    tile.first_partial = num_partials_;
    if (tile.num_parts > 1) num_partials_ += args.num_kv_heads * tile.num_parts;
    for (int64_t part = 0; part < tile.num_parts; ++part) {
      const int64_t cost = (tile.part_begin(part + 1) - tile.part_begin(part)) * tile.num_rows;
      for (int64_t head = 0; head < args.num_kv_heads; ++head)
        tasks_.push_back({static_cast<int64_t>(t), head, part, cost});
    }
  }
  // The longest first, so that the threads end together. Stable: neighbours share keys in the
  // caches.
  std::stable_sort(tasks_.begin(), tasks_.end(),
                   [](const AttentionTask& a, const AttentionTask& b) { return a.cost > b.cost; });
}

}  // namespace pecia::kernels::cpu
