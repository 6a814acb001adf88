// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What the runs of a tuner say together.

#include <vector>

#include "lib/files/prompts/prompts.hpp"
#include "lib/run/tune_runs.hpp"
#include "lib/simulation/tune/tuned.hpp"

namespace pecia::run {

/// Adds the dense and the other samples to `tuned`. `results` are in the order of the runs, of
/// which each attention has two, first the one for its time, and dense attention comes first. A
/// judged run has its questions' results after those of the prompts. Throws InvalidArgument where
/// results are not of these prompts.
void add_samples(tune::Tuned& tuned, const std::vector<TuneRun>& runs,
                 const std::vector<std::vector<PromptResult>>& results,
                 const std::vector<io::PromptText>& questions);

}  // namespace pecia::run
