// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How each rank finds its place, by which ranks are sorted into the process grid.

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/comm/communicator.hpp"
#include "lib/comm/place.hpp"

namespace pecia::cluster {

struct RackServer {
  std::string rack, server;
  bool operator==(const RackServer&) const = default;
};

/// A topology file: "HOST RACK [SERVER]" per line, '#' starts a comment, SERVER is HOST when
/// absent. By host. InputError naming `name` and the line.
std::map<std::string, RackServer> parse_topology_file(const std::string& text,
                                                      const std::string& name);

/// Slurm's SLURM_TOPOLOGY_ADDR and SLURM_TOPOLOGY_ADDR_PATTERN: "spine.rack1.n1" with
/// "switch.switch.node" is rack "spine.rack1", server "n1". Absent when they do not fit each other.
std::optional<RackServer> parse_slurm_address(std::string_view address, std::string_view pattern);

/// What a rank knows of its own place. Absent: not there.
struct PlaceFacts {
  std::string host;
  int local_rank = 0;                        ///< among the ranks that share the host
  std::optional<std::string> topology_file;  ///< its path
  std::optional<std::string> slurm_address, slurm_pattern;
};

/// The facts of this process: host name, `topology_file` (else PECIA_TOPOLOGY_FILE), Slurm's
/// variables. The local rank comes from Communicator::split_by_host alone: Slurm's SLURM_LOCALID is
/// the daemon's under mpirun.
PlaceFacts place_facts(int local_rank,
                       const std::optional<std::filesystem::path>& topology_file = {});

/// By the topology file if there is one, else Slurm's address, else the host's name. InputError for
/// a file that cannot be read or lacks the host.
comm::RackServerGpu locate(const PlaceFacts& facts);

/// InputError naming the ranks where two have the same place, where some have no rack while others
/// have one, and where servers have different numbers of ranks: then groups of equal size would
/// straddle servers, and the ranks of the fullest would have less memory than the others. Racks may
/// have different numbers of servers.
void require_sound(std::span<const comm::RackServerGpu> by_rank);

/// Collective: every rank's place, by rank, and sound; InputError on every rank.
std::vector<comm::RackServerGpu> gather_places(comm::Communicator& world,
                                               const comm::RackServerGpu& mine);

/// Collective: every rank finds its own place and gets all, by rank. What one rank cannot find is
/// an InputError on every rank, with its rank and host.
std::vector<comm::RackServerGpu> find_places(
    comm::Communicator& world, const std::optional<std::filesystem::path>& topology_file = {});

}  // namespace pecia::cluster
