// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How a pass uses the SP × TP ranks that share one place of the ring: which rows of hidden states
/// a rank keeps, over which ranks it exchanges heads, and over which its weights are cut. A pass's
/// rows are all those of the ring place, in the order of RingAttention; every cut is contiguous and
/// even to within one row, whatever sequences the rows belong to, and may be empty.

#include <cstdint>
#include <vector>

namespace pecia::parallel {

enum class Sharding : uint8_t {
  /// Rows over SP, weights over TP: heads by all-to-all over SP (Ulysses), partial sums by
  /// all-reduce over TP. TP alone and Ulysses alone are its special cases.
  base,
  /// Rows over SP and, inside, over TP: all-gather before and reduce-scatter after what is cut over
  /// TP (SP-TP).
  sp_tp,
  /// Rows on every rank, weights over SP · TP in the order of kv_shard: one larger TP group over the
  /// same KV.
  /// This is Shift Parallelism's shift configuration.
  shift,
  /// Rows over SP · TP, each layer's weights gathered over TP (SP-NTP over weights cut by TP).
  gathered,
};

/// Rows [begin, end) of a pass.
struct RowRange {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool operator==(const RowRange&) const = default;
};

/// Part `index` of `count` of `rows`.
///
///     5 rows in 3 parts     [0,1) [1,3) [3,5)
RowRange row_part(RowRange rows, int count, int index);

/// A rank's place in the SP × TP block.
struct BlockPlace {
  int sp = 1, tp = 1;  ///< degrees of the job
  int sp_index = 0, tp_index = 0;
};

/// In which blocks a rank multiplies its rows by its part of the weights: while one block's sums
/// over the ranks travel, the others are multiplied. One block with whole weights, where nothing
/// travels, and for less than 2 · min_block_rows; else two, or more of full_block_rows each, up to
/// max_row_blocks.
///
///     1100 rows, weights in 2 parts     [0,550) [550,1100)
///     1600 rows, weights in 2 parts     [0,533) [533,1066) [1066,1600)
std::vector<RowRange> row_blocks(RowRange rows, int weight_parts);

/// Every block packs the weights anew: 2048 rows in blocks of 512, 256 and 128 take 2, 5 and 15 %
/// longer than at once (matrices of 576 to 4096, fp32 and bf16, one thread with AVX-512).
inline constexpr int64_t min_block_rows = 256, full_block_rows = 512;
/// With four, a block's sum and the gather after it each have a block's product to hide behind.
inline constexpr int max_row_blocks = 4;

/// What follows from the sharding for one rank.
struct ShardedRows {
  RowRange linear;  ///< that it multiplies by its weights: its own, or those of its TP group
  std::vector<RowRange> blocks;  ///< that `linear` is multiplied in
  std::vector<RowRange> own;     ///< of each block, the rows whose hidden states it keeps

  int64_t num_own() const;
  /// Where `row` stands among the own rows, one block after the other; −1: it is another's.
  int64_t own_index(int64_t row) const;
};

ShardedRows sharded_rows(Sharding sharding, const BlockPlace& place, int64_t num_rows);

/// Into how many parts a layer's weights are cut, and which one the rank multiplies by.
struct WeightCut {
  int count = 1, index = 0;
  bool operator==(const WeightCut&) const = default;
};
WeightCut weight_cut(Sharding sharding, const BlockPlace& place);

}  // namespace pecia::parallel
