// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The model that a job names.

#include "lib/job/job.hpp"
#include "lib/model/config.hpp"

namespace pecia::job {

/// The model as the job wants it: config.json, with model.rope_scaling applied. InputError where
/// the job asks for tokens that the model has not.
model::ModelConfig read_model_config(const Job& job);

}  // namespace pecia::job
