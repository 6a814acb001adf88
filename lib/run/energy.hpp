// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The energy that a run's devices take: one rank of a host counts its processors, and one rank of
/// a GPU counts that.

#include <optional>

#include "lib/base/report/run_report.hpp"
#include "lib/ranks/cluster/energy.hpp"
#include "lib/run/setup.hpp"

namespace pecia::run {

/// What this rank counts. Collective over all ranks.
cluster::EnergyMeter::Sources metered_by(const Setup& setup);

/// The sum of all ranks' readings; a kind of device is absent unless all of them could be read.
/// Collective over `world`; every rank gets the same, but for the reasons.
report::EnergyReport energy_of_run(comm::Communicator& world, const cluster::Energy& mine);

}  // namespace pecia::run
