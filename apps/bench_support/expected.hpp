// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a rank has to send in a pass, by the formulas of lib/parallel and lib/context.

#include "lib/execute/worker.hpp"
#include "lib/model/config.hpp"

namespace pecia::bench {

struct ExpectedBytes {
  int64_t layers = 0;   ///< ring, heads, sums and gathers of all layers
  int64_t outside = 0;  ///< embedding of a table that is cut, and logits likewise

  int64_t total() const { return layers + outside; }
  ExpectedBytes& operator+=(const ExpectedBytes& other);
};

/// Of the plan that the worker has executed last.
ExpectedBytes expected_bytes(execute::Worker& worker, const schedule::Plan& plan,
                             const model::ModelConfig& config, DType weights);

}  // namespace pecia::bench
