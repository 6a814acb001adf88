// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The limits of a replica's scheduler, for runs, for plans and for checks before a run.

#include "lib/engine/schedule/scheduler_limits.hpp"
#include "lib/model/config/config.hpp"
#include "lib/work/resources/resources.hpp"

namespace pecia::schedule {

/// What the rules for rings and levels need of the model.
parallel::RingShape ring_shape(const model::ModelConfig& config,
                               const resources::Resources& resources);

/// Bytes of a row's queries to one holder and of its partial outputs home, with the log-sum of each
/// head, all layers together, on a rank of SP × TP.
double query_bytes_per_row(const model::ModelConfig& config, const resources::Resources& resources);

/// Whether sequences get memory as they grow (kv.admission).
bool on_demand(const job::Job& job);

/// What job, model and resources say of the limits. Rates, times, tokenizer and grammars are left to
/// the caller.
SchedulerLimits limits_of(const job::Job& job, const model::ModelConfig& config,
                          const resources::Resources& resources);

}  // namespace pecia::schedule
