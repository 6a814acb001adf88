// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a run says before its first pass.

#include "lib/run/open_results.hpp"
#include "lib/run/run_summary.hpp"
#include "lib/run/starts.hpp"

namespace pecia::run {

/// `weights` and `setup` outlive the result.
RunFacts facts_of(const Setup& setup, const LoadedWeights& weights);

/// The model, the requests and the resources, and what is remarkable about them; records the start
/// (starts.hpp). `product_flops`: of all ranks, per second. Collective over all ranks.
void say_first_lines(const RunFacts& facts, const Setup& setup, const RunInputs& inputs,
                     const RunResults& results, const Start& start, double product_flops);

}  // namespace pecia::run
