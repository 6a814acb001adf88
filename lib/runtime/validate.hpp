#pragma once
/// What `pecia run --validate` checks beyond the job file itself.

#include "lib/runtime/job.hpp"

namespace pecia::runtime {

/// Reads the model's configuration and every prompt shard without running anything. InputError with
/// what is wrong.
void validate_inputs(const Job& job);

}  // namespace pecia::runtime
