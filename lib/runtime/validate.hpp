#pragma once
/// `pecia run --validate`: everything that can be wrong before work starts, without starting it.

#include "lib/runtime/job.hpp"

namespace pecia::runtime {

/// Reads the model's configuration, the shapes of its weights and the input shards, and resolves
/// degrees and modes for a start on `num_ranks` ranks. InputError naming what is wrong.
void validate_inputs(const Job& job, int num_ranks);

/// The model as the job wants it: config.json, with model.rope_scaling applied. InputError where
/// the job asks for tokens that the model has not.
model::ModelConfig read_model_config(const Job& job);

}  // namespace pecia::runtime
