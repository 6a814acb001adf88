// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The limits of a replica's scheduler, from the job, the model and the resources.

#include <memory>

#include "lib/engine/schedule/scheduler_limits.hpp"
#include "lib/settle/measure/measured.hpp"

namespace pecia::settle {

/// The limits of schedule::limits_of, with what this machine and this start add. `time` without a
/// value: there is no limit, and no times of teams either.
schedule::SchedulerLimits scheduler_limits(const job::Job& job, const model::ModelConfig& config,
                                           resources::Resources resources,
                                           const measure::Measured& measured,
                                           std::optional<schedule::TimeLimit> time,
                                           std::shared_ptr<const io::Detokenizer> detokenizer);

/// What a team's pass sends beyond a pass of one instance, by the measured bandwidth.
schedule::TeamCosts team_costs(const model::ModelConfig& config,
                               const resources::Resources& resources,
                               const parallel::RingRates& rates);

}  // namespace pecia::settle
