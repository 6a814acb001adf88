// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Where a rank is, and how far apart two ranks are.

#include <array>
#include <compare>
#include <span>
#include <string>
#include <vector>

namespace pecia::comm {

/// Equal racks are near, equal servers nearer. Ordered by rack, server, device.
struct RackServerGpu {
  std::string rack;    ///< switches from the root on, as "spine.rack1"; empty: unknown
  std::string server;  ///< the node's name
  int device = 0;      ///< the rank's number on its server: its GPU, on CPUs its local rank

  auto operator<=>(const RackServerGpu&) const = default;
};

/// "spine.rack1:n1:0"; an unknown rack is "-".
std::string to_string(const RackServerGpu& place);

/// The widest step that a message between two ranks takes.
enum class LinkLevel {
  server,  ///< both on one server
  rack,    ///< another server of the same rack; servers of unknown racks share one
  system   ///< another rack
};
inline constexpr int num_link_levels = 3;
inline constexpr std::array<const char*, num_link_levels> link_level_names{"server", "rack",
                                                                           "system"};

LinkLevel link_level(const RackServerGpu& a, const RackServerGpu& b);

/// Equal numbers for ranks on one server: 0, 1, … in the order in which `by_rank` names servers.
std::vector<int> server_of_rank(std::span<const RackServerGpu> by_rank);

}  // namespace pecia::comm
