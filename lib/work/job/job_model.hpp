// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The model that a job names.

#include "lib/model/config/config.hpp"
#include "lib/work/job/job.hpp"

namespace pecia::job {

/// Reads config.json and applies model.rope_scaling. Throws InputError where the job names tokens
/// that the model's vocabulary does not have.
model::ModelConfig read_model_config(const Job& job);
/// The same for a configuration that was read already.
model::ModelConfig model_config_of(const Job& job, model::ModelConfig config);

}  // namespace pecia::job
