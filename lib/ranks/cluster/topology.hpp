// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Finds the place of each rank. The process grid sorts ranks by place.

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/ranks/comm/communicator.hpp"
#include "lib/ranks/comm/place.hpp"

namespace pecia::cluster {

struct RackServer {
  std::string rack, server;
  bool operator==(const RackServer&) const = default;
};

/// Parses a topology file with one "HOST RACK [SERVER]" per line. '#' starts a comment; SERVER
/// defaults to HOST. Returns the places by host. Throws InputError naming `name` and the line.
std::map<std::string, RackServer> parse_topology_file(const std::string& text,
                                                      const std::string& name);

/// Parses Slurm's SLURM_TOPOLOGY_ADDR and SLURM_TOPOLOGY_ADDR_PATTERN: "spine.rack1.n1" with
/// "switch.switch.node" gives rack "spine.rack1" and server "n1". Absent when address and pattern
/// do not match.
std::optional<RackServer> parse_slurm_address(std::string_view address, std::string_view pattern);

/// What a rank knows about its own place.
struct PlaceFacts {
  std::string host;
  int local_rank = 0;                        ///< number among the ranks that share the host
  std::optional<std::string> topology_file;  ///< path of the topology file
  std::optional<std::string> slurm_address, slurm_pattern;
};

/// The facts of this process: host name, `topology_file` (else PECIA_TOPOLOGY_FILE), Slurm's
/// variables. The local rank comes from Communicator::split_by_host only, because under mpirun
/// Slurm's SLURM_LOCALID is the number of the daemon.
PlaceFacts place_facts(int local_rank,
                       const std::optional<std::filesystem::path>& topology_file = {});

/// Finds the place by the topology file if there is one, else by Slurm's address, else by the host
/// name. Throws InputError for a file that cannot be read or lacks the host.
comm::RackServerGpu locate(const PlaceFacts& facts);

/// Throws InputError naming the ranks in three cases: two ranks have the same place; some ranks
/// have a rack and others have none; servers have different numbers of ranks. In the last case
/// groups of equal size would straddle servers, and ranks of the fullest server would have less
/// memory than others. Racks may have different numbers of servers.
void require_sound(std::span<const comm::RackServerGpu> by_rank);

/// Collective: gathers every rank's place, by rank, and checks them as require_sound does. An
/// InputError is thrown on every rank.
std::vector<comm::RackServerGpu> gather_places(comm::Communicator& world,
                                               const comm::RackServerGpu& mine);

/// Collective: every rank finds its own place and gets all places, by rank. If one rank cannot find
/// its place, every rank throws an InputError with that rank and its host.
std::vector<comm::RackServerGpu> find_places(
    comm::Communicator& world, const std::optional<std::filesystem::path>& topology_file = {});

}  // namespace pecia::cluster
