// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Stages of a pipeline: which layers of a model each has, and which ranks are in it. A replica's
/// ranks are PP stages of CP × SP × TP ranks each. A stage has consecutive layers, with their weights
/// and keys alone. Hidden states go through the stages in their order. Each rank sends its own rows to
/// the rank with the same place in the next stage, which has the same rows, since all stages run the
/// same plan in the same grid.
///
/// Source: Huang et al., GPipe (stages of layers); Narayanan et al., Megatron-LM (a stage's ranks send
/// to those with the same place in the next one).

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "lib/ranks/parallel/sharding.hpp"

namespace pecia::parallel {

/// A rank's stage, and its place among the stage's ranks.
///
///     6 ranks in 3 stages     rank 3 is rank 1 of stage 1; it gets rows from rank 1 and sends them
///                             to rank 5
struct StagePlace {
  int stages = 1, stage = 0;
  int ranks = 1, rank = 0;  ///< of the stage

  bool is_first() const { return stage == 0; }
  bool is_last() const { return stage == stages - 1; }
  /// The rank of the replica that has this place in another stage.
  int rank_in(int other) const { return other * ranks + rank; }
};

/// `replica_ranks` is a multiple of `stages`.
StagePlace stage_place(int rank, int replica_ranks, int stages);

/// Cuts layers into stages so that the costliest stage costs least. Among the cuts that reach this,
/// costs are as even as found stage by stage. `costs`: of each layer, ≥ 0. `first`, `last`: further
/// costs of the first and the last stage (embedding and head). `may_be`: which ranges a stage may
/// have; null: all. Each stage has at least one layer. Absent: no cut is allowed.
///
///     costs 2 2 2 2, last 2, 2 stages     [0,2) [2,4) cost 4 and 6; [0,3) [3,4) cost 6 and 4:
///                                         both 6 at most, and the sums of squares are equal, too, so
///                                         the first stage gets fewer layers
std::optional<std::vector<RowRange>> balanced_stages(
    std::span<const double> costs, int stages, double first = 0, double last = 0,
    const std::function<bool(const RowRange& layers)>& may_be = nullptr);

}  // namespace pecia::parallel
