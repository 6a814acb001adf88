// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Clusters that are described by the GPUs of a server alone.

#include <optional>
#include <string>
#include <vector>

#include "lib/work/cluster_files/cluster.hpp"

namespace pecia::cluster_files {

/// Names of the GPUs that are known.
std::vector<std::string> known_gpus();

struct GpuServers {
  std::string name;     ///< "servers of 4 × h100-80gb"
  std::string assumed;  ///< what nobody said of them, in words
  Cluster cluster;
};

/// Servers with `per_server` GPUs of this name (in any case, also h200 for h200-141gb), or with as many
/// as their board has. Peaks and shares are those of the preset with this GPU. Each GPU has an adapter of
/// its own, as fast as is common beside it. Throws InputError for a name that is not known or may mean
/// several GPUs, naming these, and for more GPUs than a board has.
GpuServers gpu_servers(const std::string& gpu, std::optional<int> per_server);

}  // namespace pecia::cluster_files
