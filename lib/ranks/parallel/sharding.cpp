// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/parallel/sharding.hpp"

#include <algorithm>

#include "lib/base/core/error.hpp"
#include "lib/ranks/parallel/heads.hpp"

namespace pecia::parallel {

RowRange row_part(RowRange rows, int count, int index) {
  PECIA_CHECK(count >= 1 && index >= 0 && index < count, "part {} of {}", index, count);
  const auto cut = [&](int64_t part) { return rows.begin + rows.size() * part / count; };
  return {cut(index), cut(index + 1)};
}

std::vector<RowRange> row_blocks(RowRange rows, int weight_parts) {
  return row_blocks(rows, weight_parts, rows.size());
}

std::vector<RowRange> row_blocks(RowRange rows, int weight_parts, int64_t fewest) {
  int count = 1;
  if (weight_parts > 1 && fewest >= 2 * min_block_rows)
    count = static_cast<int>(std::clamp<int64_t>(fewest / full_block_rows, 2, max_row_blocks));
  std::vector<RowRange> blocks;
  for (int block = 0; block < count; ++block) blocks.push_back(row_part(rows, count, block));
  return blocks;
}

int64_t ShardedRows::num_own() const {
  int64_t rows = 0;
  for (const RowRange& range : own) rows += range.size();
  return rows;
}

int64_t ShardedRows::own_index(int64_t row) const {
  int64_t before = 0;
  for (const RowRange& range : own) {
    if (range.begin <= row && row < range.end) return before + row - range.begin;
    before += range.size();
  }
  return -1;
}

ShardedRows ShardedRows::part_of(std::span<const int64_t> some) const {
  const auto before = [&](int64_t row) {
    return std::ranges::lower_bound(some, row) - some.begin();
  };
  const auto among = [&](const RowRange& rows) {
    return RowRange{before(rows.begin), before(rows.end)};
  };
  ShardedRows part{among(linear), {}, {}};
  for (const RowRange& block : blocks) part.blocks.push_back(among(block));
  for (const RowRange& of_block : own) part.own.push_back(among(of_block));
  return part;
}

std::vector<RowRange> places_in(std::span<const RowRange> ranges, std::span<const int64_t> some) {
  std::vector<RowRange> places;
  int64_t before = 0;
  for (const RowRange& range : ranges) {
    for (auto row = std::ranges::lower_bound(some, range.begin);
         row != some.end() && *row < range.end; ++row) {
      const int64_t place = before + *row - range.begin;
      if (places.empty() || places.back().end != place) places.push_back({place, place});
      ++places.back().end;
    }
    before += range.size();
  }
  return places;
}

ShardedRows sharded_rows(Sharding sharding, const BlockPlace& place, int64_t num_rows) {
  const RowRange all{0, num_rows};
  ShardedRows rows;
  switch (sharding) {
    case Sharding::base:
    case Sharding::sp_tp:
      rows.linear = row_part(all, place.sp, place.sp_index);
      break;
    case Sharding::shift:
      rows.linear = all;
      break;
    case Sharding::gathered:
      rows.linear =
          row_part(all, place.sp * place.tp, kv_shard(place.sp, place.sp_index, place.tp_index));
      break;
  }
  // Ranks of SP may have a row more than others. Rows go to experts block by block.
  const int64_t fewest = sharding == Sharding::shift ? num_rows : num_rows / place.sp;
  rows.blocks = row_blocks(rows.linear, weight_cut(sharding, place).count, fewest);
  for (const RowRange& block : rows.blocks)
    rows.own.push_back(sharding == Sharding::sp_tp ? row_part(block, place.tp, place.tp_index)
                                                   : block);
  return rows;
}

WeightCut weight_cut(Sharding sharding, const BlockPlace& place) {
  const int in_block = kv_shard(place.sp, place.sp_index, place.tp_index);
  WeightCut cut;
  if (place.ep > 1) cut.expert_ranks = place.ep, cut.expert_index = in_block;
  switch (sharding) {
    case Sharding::base:
    case Sharding::sp_tp:
      cut.count = place.tp, cut.index = place.tp_index;
      break;
    case Sharding::shift:
      cut.count = place.sp * place.tp, cut.index = in_block;
      break;
    case Sharding::gathered:
      break;
  }
  return cut;
}

}  // namespace pecia::parallel
