// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Calls of attention with all that the kernels read besides tensors. All this is planned on the
/// host and sent to the device in one piece.

#include <memory>
#include <vector>

#include "kernels/cuda/attention/attention_plan.hpp"
#include "kernels/cuda/shared/staging.hpp"

namespace pecia::kernels::cuda {

/// A call's arrays. First comes the array that has an entry for each row. Then come the arrays that
/// grow with sequences and have room to grow.
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
  PlanLimits limits;  ///< limits of the kernels that it is for
  PlanRoom room;
  AttentionOnDevice there;

  bool serves(const AttentionArgs& call, const PlanLimits& wanted) const;
};

class AttentionCalls {
 public:
  /// `staging` must outlive this object.
  explicit AttentionCalls(Staging& staging) : staging_(staging) {}

  /// Forgets the calls of the step before, but not how much room they had.
  void begin_step() { planned_.clear(); }

  /// Returns the call with its arrays on the device. With `lasts`, the call's spans belong to the
  /// caller, who keeps them to the end of a step.
  std::shared_ptr<const PlannedAttention> plan(const AttentionArgs& args, const PlanLimits& limits,
                                               bool lasts, device::Stream& stream);

 private:
  Staging& staging_;
  std::vector<std::shared_ptr<const PlannedAttention>> planned_;  ///< planned in the step
  std::vector<PlanRoom> rooms_;  ///< room of the i-th plan in the last step that had one
};

}  // namespace pecia::kernels::cuda
