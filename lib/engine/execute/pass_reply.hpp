// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lib/engine/schedule/plan.hpp"

namespace pecia::execute {

/// What a rank sends to rank 0 of its replica after a pass.
struct PassReply {
  uint8_t stop_requested = 0;  ///< 1: this rank was told to stop
  int64_t pass = -1;           ///< number of the plan; −1: none
  double flops = 0;            ///< work of this rank in the pass
  schedule::Outcome outcome;

  template <typename A>
  void visit(A& archive) {
    archive(stop_requested), archive(pass), archive(flops);
    outcome.visit(archive);
  }
};

}  // namespace pecia::execute
