// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How fast messages travel between ranks, in the host's memory, by the level of links.

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "lib/comm/communicator.hpp"

namespace pecia::cluster {

struct RankPair {
  int from = 0, to = 0;
  bool operator==(const RankPair&) const = default;
};

/// Pairs that stand for their level: the first two ranks of a server, the first ranks of two
/// neighbouring servers of a rack, those of two neighbouring racks. At most `limit` of each level,
/// evenly spread, sorted by level. `places` by rank.
std::vector<RankPair> representative_pairs(std::span<const comm::RackServerGpu> places, int limit);

struct MeasureOptions {
  int64_t large_bytes = int64_t{8} << 20;  ///< of messages that bandwidth is measured with
  std::chrono::nanoseconds budget =
      std::chrono::milliseconds(50);  ///< of a figure; one round at least
};

struct PairFigures {
  RankPair ranks;
  double latency_us = 0;      ///< of a message of 8 bytes, one way: half a round trip
  double bandwidth_gb_s = 0;  ///< 1e9 bytes per second of large messages, one after the other
};

/// Round trips of the pairs, one pair after the other, while all other ranks wait: no pair disturbs
/// another. Medians. Collective over `world`; the same on every rank.
std::vector<PairFigures> measure_pairs(comm::Communicator& world, std::span<const RankPair> pairs,
                                       const MeasureOptions& options);

struct RingFigures {
  std::vector<int> ranks;              ///< in the ring's order; each sends to the next
  double step_us = 0;                  ///< of a step of 8 bytes, of all rings at once
  std::vector<double> bandwidth_gb_s;  ///< by rank: of the link from it to the next
};

/// Steps of rings, all links of all rings at once, as in ring attention. Every rank is in at most
/// one ring. Medians. Collective over `world`; the same on every rank.
std::vector<RingFigures> measure_rings(comm::Communicator& world,
                                       const std::vector<std::vector<int>>& rings,
                                       const MeasureOptions& options);

}  // namespace pecia::cluster
