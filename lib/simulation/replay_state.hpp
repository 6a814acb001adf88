// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Where all ranks are at a moment of a replay, and whether they are there again a layer later.

#include <deque>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lib/simulation/network.hpp"
#include "lib/simulation/replay.hpp"

namespace pecia::simulation {

/// Messages that a rank started together.
struct Started {
  const comm::PhantomStart* start;
  int64_t operation;   ///< number of the operation in its group
  int64_t open = 0;    ///< messages that have not arrived yet, in both directions
  int64_t after = -1;  ///< the step before, while it is not done
  int64_t then = -1;   ///< the next step, if it has started already
  int64_t bytes = 0;   ///< received
  bool begun = false;

  bool done() const { return begun && open == 0; }
};

/// A rank on its way through its program.
struct PlayedRank {
  size_t section = 0, step = 0;
  int64_t time_of_section = 0;
  double now = 0;
  int64_t waits_for = -1;  ///< number of what it has started; −1: it goes on at `now`
  double waits_since = 0;
  std::vector<Started> started;
  int64_t first_open = 0;                            ///< all starts before this one are done
  std::unordered_map<uint64_t, int64_t> operations;  ///< begun so far, by group
  RankTimes times;
};

/// One side of a message: who started it, and its length.
struct Side {
  int rank;
  int64_t number;
  int64_t bytes;
};

/// What says which sent message is which received one: messages of one match arrive in the order
/// sent.
struct Match {
  uint64_t group;
  int64_t operation;  ///< −1: a message of the series
  int from, to;
  bool operator==(const Match&) const = default;
};
struct HashOfMatch {
  size_t operator()(const Match& match) const {
    uint64_t hash = match.group;
    for (const int64_t part : {match.operation, int64_t{match.from}, int64_t{match.to}})
      hash = (hash ^ static_cast<uint64_t>(part)) * 0x9e3779b97f4a7c15u, hash ^= hash >> 29;
    return hash;
  }
};
/// Sides of messages that have not met the other one.
using Sides = std::unordered_map<Match, std::deque<Side>, HashOfMatch>;

/// All of a replay that says how it goes on, with times since `at`, and with counts of what repeats
/// as differences. If two states are alike, what follows them is the same.
struct ReplayState {
  double at = 0;
  int64_t lap = 0;               ///< repetitions that all ranks have done
  std::vector<RankTimes> spent;  ///< by rank, so far
  int64_t messages = 0;          ///< so far

  std::vector<int64_t> counts;
  std::vector<double> seconds, bytes;
};

/// `met`: the two sides of each message that was sent.
ReplayState state_of(double now, int64_t lap, const std::vector<PlayedRank>& ranks,
                     const Sides& sends, const Sides& receives,
                     const std::vector<std::pair<Side, Side>>& met, const Network& network);

/// Whether `later` repeats `earlier`, up to a millionth of the time between them.
bool alike(const ReplayState& earlier, const ReplayState& later);

}  // namespace pecia::simulation
