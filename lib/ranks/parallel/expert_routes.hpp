// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Expert parallelism as values: who holds which experts, and which rows travel to whom.
///
/// The experts are dealt out over the ranks of the SP × TP block, whole, in the order of kv_shard.
/// A rank multiplies the rows of its peers by its experts. Its peers are the ranks that have other
/// rows. What ranks with the same rows multiply, each by its own experts, is added as the parts of
/// weights that TP cuts are.
///
///     Sharding      peers                                  then added over
///     base, sp_tp   the ranks of SP with the same place    TP, by all-reduce or reduce-scatter
///                   in TP
///     gathered      the whole block                        nobody
///     shift         the rank alone                         the whole block
///
/// Sources: GShard §3.2 (experts by all-to-all); DeepSeek-V3 §2.1.2 (a row goes once to a rank,
/// however many of its experts are there).

#include <cstdint>
#include <span>
#include <vector>

#include "lib/ranks/parallel/sharding.hpp"

namespace pecia::parallel {

/// The experts of `experts` that a rank holds.
///
///     10 experts on 4 ranks     [0,2) [2,5) [5,7) [7,10)
RowRange held_experts(int64_t experts, const WeightCut& cut);

/// The places of a rank's peers in the order of their group, itself among them. The group is SP's,
/// or the block's with Sharding::gathered. One place: no rows travel.
std::vector<BlockPlace> expert_peers(Sharding sharding, const BlockPlace& place);

/// An expert that a row takes, and the weight of its result.
struct ExpertChoice {
  int32_t expert;
  float weight;
};

/// The rows that take one of the experts in `held`, in ascending order. `choices` has `per_row`
/// experts for each row.
///
///     experts {0, 4} {1, 2} {4, 5}     held [4,6)     rows 0 and 2
std::vector<int32_t> rows_taking(std::span<const ExpertChoice> choices, int64_t per_row,
                                 RowRange held);

}  // namespace pecia::parallel
