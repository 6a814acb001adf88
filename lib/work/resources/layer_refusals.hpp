// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a job may not ask of models with certain layers: latent attention, heads of their own,
/// recurrences. Internal to lib/work/resources.

#include "lib/model/config/config.hpp"
#include "lib/work/job/job.hpp"

namespace pecia::resources {

/// Throws Unsupported where the model's layers lack what the job asks for.
void refuse_with_layers(const job::Job& job, const model::ModelConfig& config);

}  // namespace pecia::resources
