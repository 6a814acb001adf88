// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The lines of the log before the first pass.

#include "lib/run/open_results.hpp"
#include "lib/run/run_summary.hpp"
#include "lib/run/starts.hpp"

namespace pecia::run {

/// `weights` and `setup` outlive the result.
RunFacts facts_of(const Setup& setup, const LoadedWeights& weights);

/// Says the model, the requests, the resources, and remarks about them; records the start
/// (starts.hpp). `product_flops`: FLOP/s of all ranks. Collective over all ranks.
void say_first_lines(const RunFacts& facts, const Setup& setup, const RunInputs& inputs,
                     const RunResults& results, const Start& start, double product_flops);

}  // namespace pecia::run
