// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Whether a model reads requests of the lengths that a plan is about.

#include <string>
#include <vector>

#include "apps/pecia/plan_batch.hpp"
#include "lib/model/config/config.hpp"
#include "lib/work/batch/inputs.hpp"
#include "lib/work/job/job.hpp"

namespace pecia::app {

/// Throws InputError for a request that is longer, with its answer, than the model of this name reads.
/// It names presets that read as much and the model.rope_scaling with which this one would.
/// `config`: with the job's scaling.
void refuse_long_requests(const std::vector<AskedRequests>& asked, const job::Job& job,
                          const model::ModelConfig& config, const std::string& model);

/// Throws InputError that says why none of the prompts can run: they are all too long, or there are
/// none, or they have other faults.
[[noreturn]] void refuse_without_prompts(const batch::Inputs& inputs, const job::Job& job,
                                         const model::ModelConfig& config);

}  // namespace pecia::app
