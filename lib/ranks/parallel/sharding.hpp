// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How a pass uses the SP × TP ranks that share one place of the ring. The sharding decides which
/// rows of hidden states a rank keeps, over which ranks it exchanges heads, and over which ranks
/// its weights are cut. A pass's rows are all rows of the ring place, in the order of
/// Attention. Each cut is contiguous and even to within one row. It ignores sequence boundaries
/// and may be empty.

#include <cstdint>
#include <span>
#include <vector>

namespace pecia::parallel {

enum class Sharding : uint8_t {
  /// Rows are cut over SP, and weights over TP. Heads are exchanged by all-to-all over SP
  /// (Ulysses). Partial sums are added by all-reduce over TP. TP alone and Ulysses alone are its
  /// special cases.
  base,
  /// Rows are cut over SP and, inside, over TP. An all-gather comes before what is cut over TP, and
  /// a reduce-scatter comes after it (SP-TP).
  sp_tp,
  /// Rows are on every rank. Weights are cut over SP · TP in the order of kv_shard. So the ranks
  /// are one larger TP group over the same KV. This is Shift Parallelism's shift configuration.
  shift,
  /// Rows are cut over SP · TP. Each layer's weights are gathered over TP (SP-NTP over weights cut
  /// by TP).
  gathered,
};

/// Rows [begin, end) of a pass.
struct RowRange {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool operator==(const RowRange&) const = default;
};

/// Returns part `index` of `count` of `rows`.
///
///     5 rows in 3 parts     [0,1) [1,3) [3,5)
RowRange row_part(RowRange rows, int count, int index);

/// A rank's place in the SP × TP block.
struct BlockPlace {
  int sp = 1, tp = 1;  ///< degrees of the job
  int sp_index = 0, tp_index = 0;
  int ep = 1;  ///< ranks that experts are dealt out over: 1, or all of the block
};

/// Cuts a rank's rows into blocks. While one block's sums over the ranks travel, the others are
/// multiplied. There is one block if weights are whole, as nothing travels then, or if there are
/// fewer than 2 · min_block_rows rows. Else there are two blocks, or more blocks of at least
/// full_block_rows rows each, up to max_row_blocks.
///
///     1100 rows, weights in 2 parts     [0,550) [550,1100)
///     1600 rows, weights in 2 parts     [0,533) [533,1066) [1066,1600)
std::vector<RowRange> row_blocks(RowRange rows, int weight_parts);

/// The same, where several ranks cut rows into equally many blocks: as many as `fewest` rows are
/// cut into.
std::vector<RowRange> row_blocks(RowRange rows, int weight_parts, int64_t fewest);

/// Every block packs the weights anew. 2048 rows in blocks of 512, 256 and 128 take 2, 5 and 15 %
/// longer than at once (matrices of 576 to 4096, fp32 and bf16, one thread with AVX-512).
inline constexpr int64_t min_block_rows = 256, full_block_rows = 512;
/// With four blocks, a block's sum and the gather after it each have a block's product to hide
/// behind.
inline constexpr int max_row_blocks = 4;

/// What a sharding means for one rank.
struct ShardedRows {
  /// Rows that the rank multiplies by its weights: its own rows, or its TP group's.
  RowRange linear;
  std::vector<RowRange> blocks;  ///< the blocks in which `linear` is multiplied
  std::vector<RowRange> own;     ///< the rows of each block whose hidden states it keeps

  int64_t num_own() const;
  /// Returns the place of `row` among the own rows, one block after the other. It is −1 if another
  /// rank has the row.
  int64_t own_index(int64_t row) const;

  /// The rank's part of `some` of the rows, ascending, which are numbered anew: row i is some[i].
  /// Rows stay on their ranks and in their blocks.
  ///
  ///     own [0,4), [4,8)     of rows 3, 4, 6     own [0,1), [1,3)
  ShardedRows part_of(std::span<const int64_t> some) const;
};

ShardedRows sharded_rows(Sharding sharding, const BlockPlace& place, int64_t num_rows);

/// Where `some` rows, ascending, lie in memory that has one range after the other. Rows that are in no
/// range are left out.
///
///     rows 3, 4, 6, 9 of ranges [0,4), [6,8)     [3,5)
std::vector<RowRange> places_in(std::span<const RowRange> ranges, std::span<const int64_t> some);

/// The number of parts into which a layer's weights are cut, and the part that the rank multiplies
/// by. Experts are cut as dense weights are, or they are dealt out whole (expert_routes.hpp).
struct WeightCut {
  int count = 1, index = 0;
  int expert_ranks = 1, expert_index = 0;  ///< of experts that are dealt out; 1: they are cut

  bool deals_experts() const { return expert_ranks > 1; }
  bool operator==(const WeightCut&) const = default;
};
WeightCut weight_cut(Sharding sharding, const BlockPlace& place);

}  // namespace pecia::parallel
