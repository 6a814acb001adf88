// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Counts what one rank of a group sends, by how far it goes.

#include <cstdint>
#include <vector>

#include "lib/ranks/comm/communicator.hpp"

namespace pecia::comm {

class TrafficMeter {
 public:
  /// All ranks count as one server until set_places.
  TrafficMeter(int rank, int size) : rank_(rank), level_of_rank_(size, LinkLevel::server) {}

  void set_places(const std::vector<RackServerGpu>& by_rank);

  /// Counts a message, unless it is empty or goes to the rank itself and so does not travel.
  void count(int64_t bytes, int to);

  const Traffic& traffic() const { return traffic_; }

 private:
  int rank_;
  std::vector<LinkLevel> level_of_rank_;
  Traffic traffic_;
};

}  // namespace pecia::comm
