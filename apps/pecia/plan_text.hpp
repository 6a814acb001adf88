// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A plan as text for people.

#include <string>

#include "lib/simulation/plan_report.hpp"

namespace pecia::app {

/// "this job runs as …", or why it is refused.
std::string outcome_text(const simulation::GridOutcome& outcome);

/// A line that says how long each request is, and all of them together.
std::string batch_text(const simulation::BatchReport& batch);

/// The whole plan: with a cluster, its layouts as a table, and how to run the best one.
std::string plan_text(const simulation::PlanReport& plan);

/// A cluster that is fitted, with the residuals as a table.
std::string cluster_plan_text(const simulation::ClusterReport& cluster);

}  // namespace pecia::app
