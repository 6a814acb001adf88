// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The limits of a replica's scheduler, from the job, the model and the resources.

#include <memory>

#include "lib/measure/measured.hpp"
#include "lib/run/setup.hpp"
#include "lib/schedule/scheduler.hpp"

namespace pecia::run {

schedule::SchedulerLimits scheduler_limits(const Setup& setup, const measure::Measured& measured,
                                           schedule::TimeLimit time,
                                           std::shared_ptr<const io::Detokenizer> detokenizer);

}  // namespace pecia::run
