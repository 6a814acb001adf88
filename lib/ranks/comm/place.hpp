// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Where a rank is, and how far apart two ranks are.

#include <array>
#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace pecia::comm {

/// Ranks with equal racks are near each other, ranks with equal servers nearer. Ordered by rack,
/// server, device.
struct RackServerGpu {
  std::string rack;    ///< switches from the root down, as "spine.rack1"; empty: unknown
  std::string server;  ///< the node's name
  int device = 0;      ///< the rank's number on its server: its GPU, or its local rank on CPUs

  auto operator<=>(const RackServerGpu&) const = default;
};

/// "spine.rack1:n1:0"; an unknown rack is "-".
std::string to_string(const RackServerGpu& place);

/// The widest link that a message between two ranks crosses.
enum class LinkLevel {
  server,  ///< both ranks are on one server
  rack,    ///< two servers of the same rack; servers of unknown racks count as one rack
  system   ///< two racks
};
inline constexpr int num_link_levels = 3;
inline constexpr std::array<const char*, num_link_levels> link_level_names{"server", "rack",
                                                                           "system"};

LinkLevel link_level(const RackServerGpu& a, const RackServerGpu& b);

/// Which ranks of a group are near each other.
struct RankLabels {
  std::vector<int> servers;  ///< by rank: ranks with equal labels share a server
  /// The same for racks, each of which has whole servers; empty: racks make no difference.
  std::vector<int> racks = {};
  /// Bytes of the largest block from which on collectives go by racks.
  int64_t least_block_by_racks = 0;
};

/// Numbers that are equal for ranks on one server: 0, 1, … in the order in which servers first
/// appear in `by_rank`.
std::vector<int> server_of_rank(std::span<const RackServerGpu> by_rank);
/// The same for racks.
std::vector<int> rack_of_rank(std::span<const RackServerGpu> by_rank);

}  // namespace pecia::comm
