// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Measures how fast messages travel between ranks, in host memory, at each level of links.

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "lib/ranks/comm/communicator.hpp"

namespace pecia::cluster {

struct RankPair {
  int from = 0, to = 0;
  bool operator==(const RankPair&) const = default;
};

/// Pairs that represent their level: the first two ranks of a server; the first ranks of two
/// neighbouring servers of a rack; the first ranks of two neighbouring racks. At most `limit` pairs
/// of each level, evenly spread, sorted by level. `places` is by rank.
std::vector<RankPair> representative_pairs(std::span<const comm::RackServerGpu> places, int limit);

struct MeasureOptions {
  int64_t large_bytes = int64_t{8} << 20;  ///< size of the messages that measure bandwidth
  std::chrono::nanoseconds budget =
      std::chrono::milliseconds(50);  ///< time per figure; at least one round
};

struct PairFigures {
  RankPair ranks;
  double latency_us = 0;      ///< one way for 8 bytes: half a round trip
  double bandwidth_gb_s = 0;  ///< 1e9 bytes per second, for large messages one after the other
};

/// Collective over `world`: measures round trips of each pair in turn while all other ranks wait,
/// so pairs do not disturb each other. Returns medians, the same on every rank.
std::vector<PairFigures> measure_pairs(comm::Communicator& world, std::span<const RankPair> pairs,
                                       const MeasureOptions& options);

struct RingFigures {
  std::vector<int> ranks;              ///< in ring order; each rank sends to the next
  double step_us = 0;                  ///< one step of 8 bytes, all rings at once
  std::vector<double> bandwidth_gb_s;  ///< by `ranks`: of the link to the next rank
};

/// Collective over `world`: measures steps of rings. All links of all rings are busy at once, as in
/// ring attention. Every rank is in at most one ring. Returns medians, the same on every rank.
std::vector<RingFigures> measure_rings(comm::Communicator& world,
                                       const std::vector<std::vector<int>>& rings,
                                       const MeasureOptions& options);

}  // namespace pecia::cluster
