// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The papers that this program's modes come from, each with its published figures and those that are
/// foreseen here. Each takes seconds, on one thread.

#include "lib/simulation/papers/paper.hpp"

namespace pecia::simulation::papers {

/// Context Parallelism for Scalable Million-Token Inference (arXiv 2411.01783).
Paper context_parallelism();
/// Communication-Efficient Sequence-Parallelism based Serving: sparse attention by levels.
Paper sparse_sequence_parallelism();
/// Shift Parallelism (arXiv 2509.16495).
Paper shift_parallelism();
/// LoongServe: elastic sequence parallelism.
Paper elastic_parallelism();

/// All of them, in this order.
std::vector<Paper> all_papers();

}  // namespace pecia::simulation::papers
