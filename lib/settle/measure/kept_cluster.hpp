// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Descriptions of this machine that `pecia topology` measured, and those that `pecia plan` fitted to
/// runs, in the user's cache. A run foresees its time by the last one of ranks like its own. Losing
/// them costs only a new measurement.

#include <optional>
#include <string>

#include "lib/model/attention/compute.hpp"
#include "lib/ranks/comm/communicator.hpp"
#include "lib/work/cluster_files/cluster.hpp"

namespace pecia::measure {

/// What a description depends on: device, CPU, instructions, threads, ranks and hosts. Rank 0's CPU
/// stands for all. Collective over `world`; every rank gets the same.
std::string ranks_key(comm::Communicator& world, const attention::Compute& compute);

/// Keeps the description in a file beside the rates (rates_cache.hpp), unless nothing is kept there.
/// Throws SystemError where the file cannot be written.
void keep_cluster(const std::string& key, const cluster_files::Cluster& cluster);

/// The description of these ranks. Absent where none was kept, where nothing is kept, and where the
/// file is damaged.
std::optional<cluster_files::Cluster> kept_cluster(const std::string& key);

}  // namespace pecia::measure
