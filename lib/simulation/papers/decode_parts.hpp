// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The parts of a decode step's attention in a ring.

#include "lib/simulation/pass_cost.hpp"

namespace pecia::simulation::papers {

/// Microseconds of one layer.
struct StepParts {
  double op_us = 0, send_receive_us = 0, all_to_all_us = 0;

  /// 0: the op, 1: the ring's messages, 2: the all-to-all.
  int largest() const;
};

/// A layer in the middle of the model, from when a first rank attends: until all queries have been
/// everywhere, the last op, and then until all outputs are home. Ranks without rows wait for queries
/// from much earlier on, which does not count. With one instance it is the op alone. The ring of the
/// first ranks of the instances counts.
StepParts decode_parts(const PassCosts& costs, const PassShape& shape);

}  // namespace pecia::simulation::papers
