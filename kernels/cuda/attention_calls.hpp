// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Calls of attention with all that the kernels read beside tensors: planned on the host and sent to
/// the device in one piece.

#include <memory>
#include <vector>

#include "kernels/cuda/attention_plan.hpp"
#include "kernels/cuda/staging.hpp"

namespace pecia::kernels::cuda {

/// A call's arrays: first what has an entry for each row, then what grows with sequences and has
/// room for it.
struct AttentionOnDevice {
  const int64_t* query_positions;
  const KeyRun* runs;
  struct List {
    const QueryTile* query_tiles;
    const PartialTile* partial_tiles;
  } wide, narrow;
};

/// A call as the kernels take it. In a step the layers' calls differ in where the keys are, and one
/// plan serves them.
struct PlannedAttention {
  AttentionArgs args;
  PlanLimits limits;  ///< of the kernels that it is for
  PlanRoom room;
  AttentionOnDevice there;

  bool serves(const AttentionArgs& call, const PlanLimits& wanted) const;
};

class AttentionCalls {
 public:
  /// `staging` outlives this object.
  explicit AttentionCalls(Staging& staging) : staging_(staging) {}

  /// Forgets the calls of the step before, but not how much room they had.
  void begin_step() { planned_.clear(); }

  /// `lasts`: the call's spans are those of the caller, who keeps them to the end of a step.
  std::shared_ptr<const PlannedAttention> plan(const AttentionArgs& args, const PlanLimits& limits,
                                               bool lasts, device::Stream& stream);

 private:
  Staging& staging_;
  std::vector<std::shared_ptr<const PlannedAttention>> planned_;  ///< in the step
  std::vector<PlanRoom> rooms_;  ///< of the i-th of them, in the last step that had as many
};

}  // namespace pecia::kernels::cuda
