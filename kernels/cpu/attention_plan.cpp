// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention_plan.hpp"

#include <algorithm>
#include <limits>

#include "kernels/cpu/parallel.hpp"

namespace pecia::kernels::cpu {
namespace {

// Rows of a tile's matrices, queries × heads of a group: q, scores and out of a head_dim of 128
// take 196 KiB each, and packing a block of keys costs a tenth of multiplying it.
constexpr int64_t tile_matrix_rows = 384;
// Tasks that keep every thread of a large host busy, and the least number of blocks worth a task.
constexpr int64_t enough_tasks = 128;
constexpr int64_t least_part_blocks = 16;

}  // namespace

Sight QueryTile::sight(const KeyBlock& block, int64_t window) const {
  if (block.min_position > max_position) return Sight::none;
  if (window > 0 && block.max_position <= min_position - window) return Sight::none;
  const bool past = block.max_position <= min_position;
  const bool near = window == 0 || block.min_position > max_position - window;
  return past && near ? Sight::all : Sight::some;
}

void AttentionPlan::make(const AttentionArgs& args, const device::Stream& stream) {
  blocks_.clear();
  item_blocks_.assign(1, 0);
  for (const AttentionItem& item : args.items) {
    cut_keys(args, item);
    item_blocks_.push_back(static_cast<int64_t>(blocks_.size()));
  }
  find_positions(args, stream);
  cut_queries(args);
  make_tasks(args);
}

void AttentionPlan::cut_keys(const AttentionArgs& args, const AttentionItem& item) {
  int64_t room = 0;
  for (int64_t run = item.first_run; run < item.first_run + item.num_runs; ++run)
    for (int64_t offset = 0; offset < args.runs[run].num_keys;) {
      if (room == 0) {
        blocks_.push_back({run, offset, 0, 0, 0});
        room = block_keys;
      }
      const int64_t count = std::min(room, args.runs[run].num_keys - offset);
      blocks_.back().num_keys += count;
      offset += count;
      room -= count;
    }
}

void AttentionPlan::find_positions(const AttentionArgs& args, const device::Stream& stream) {
  for_each_range(
      stream, static_cast<int64_t>(blocks_.size()), 256, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          KeyBlock& block = blocks_[i];
          block.min_position = std::numeric_limits<int64_t>::max();
          block.max_position = std::numeric_limits<int64_t>::min();
          for_each_piece(args, block, [&](const KeyRun& run, int64_t offset, int64_t count) {
            for (int64_t s = offset; s < offset + count; ++s) {
              block.min_position = std::min(block.min_position, run.positions[s]);
              block.max_position = std::max(block.max_position, run.positions[s]);
            }
          });
        }
      });
}

void AttentionPlan::cut_queries(const AttentionArgs& args) {
  tiles_.clear();
  tile_rows_ = 0;
  const int64_t group = args.q.size(1) / args.num_kv_heads;
  const int64_t most_rows = std::max<int64_t>(1, tile_matrix_rows / group);
  for (size_t i = 0; i < args.items.size(); ++i) {
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
      tile.block_begin = item_blocks_[i];
      tile.block_end = item_blocks_[i + 1];
      const auto unseen = [&](int64_t block) {
        return tile.sight(blocks_[block], args.window) == Sight::none;
      };
      while (tile.block_begin < tile.block_end && unseen(tile.block_begin)) ++tile.block_begin;
      while (tile.block_begin < tile.block_end && unseen(tile.block_end - 1)) --tile.block_end;
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
      int64_t seen = 0;
      for (int64_t b = tile.part_begin(part); b < tile.part_begin(part + 1); ++b)
        seen += tile.sight(blocks_[b], args.window) != Sight::none;
      for (int64_t head = 0; head < args.num_kv_heads; ++head)
        tasks_.push_back({static_cast<int64_t>(t), head, part, seen * tile.num_rows});
    }
  }
  // The longest first, so that the threads end together. Stable: neighbours share keys in the
  // caches.
  std::stable_sort(tasks_.begin(), tasks_.end(),
                   [](const AttentionTask& a, const AttentionTask& b) { return a.cost > b.cost; });
}

}  // namespace pecia::kernels::cpu
