// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Ranks on two servers, or in two racks, between which every byte counts.

#include <string>
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

/// Four servers of equal numbers of ranks, in two racks.
inline std::vector<comm::RackServerGpu> two_racks(int ranks) {
  std::vector<comm::RackServerGpu> places;
  for (int rank = 0; rank < ranks; ++rank)
    places.push_back({std::to_string(2 * rank / ranks), std::to_string(4 * rank / ranks), rank});
  return places;
}

/// Tensors go by racks in blocks of 100 bytes or more.
inline constexpr parallel::LinkCosts racks_pay{
    .across_s_per_byte = 1, .exchange_s = 100, .racks_s_per_byte = 2};

/// Keys go by relays wherever that saves a byte between servers, and states of recurrent layers in as
/// many groups of heads as there may be.
inline constexpr parallel::LinkCosts relays_pay{.across_s_per_byte = 1, .exchange_s = 1e-9};

}  // namespace pecia::test
