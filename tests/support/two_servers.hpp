// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Ranks on two servers, between which every byte counts.

#include <vector>

#include "lib/ranks/comm/place.hpp"
#include "lib/ranks/parallel/kv_routes.hpp"

namespace pecia::test {

/// Ranks 0 to n/2 − 1 on one server, the others on the next.
inline std::vector<comm::RackServerGpu> two_servers(int ranks) {
  std::vector<comm::RackServerGpu> places;
  for (int rank = 0; rank < ranks; ++rank)
    places.push_back({"rack", rank < ranks / 2 ? "a" : "b", rank});
  return places;
}

/// Keys go by relays wherever that saves a byte between servers.
inline constexpr parallel::LinkCosts relays_pay{.across_s_per_byte = 1};

}  // namespace pecia::test
