// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The limits of a replica's scheduler, for runs, for plans and for checks before a run.

#include "lib/model/config.hpp"
#include "lib/resources/resources.hpp"
#include "lib/schedule/scheduler.hpp"

namespace pecia::resources {

/// What the rules for rings and levels need of the model.
parallel::RingShape ring_shape(const model::ModelConfig& config, const Resources& resources);

/// What job, model and resources say of the limits. Rates, times, tokenizer and grammars are left to
/// the caller.
schedule::SchedulerLimits scheduler_limits(const job::Job& job, const model::ModelConfig& config,
                                           const Resources& resources);

}  // namespace pecia::resources
