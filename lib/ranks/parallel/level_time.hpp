// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How long one layer of sparse attention by levels takes: a simulator of its three phases. Tokens
/// travel to the ranks that attend them, these attend, and outputs travel home. The functions are
/// pure and take less than a microsecond for each micro-partition.
///
/// A rank does one piece of attention at a time, and it sends one message at a time. First it
/// starts to send all tokens, near levels first, and attends its own part. A step (a
/// micro-partition of a level) is attended when its tokens have come and the step before is done.
/// Its outputs travel after all tokens and after the outputs of the step before.
///
///     two steps     link       | tokens 1 | tokens 2 |   | outputs 1 | outputs 2 |
///                   attention  |   own part  | step 1 | step 2 |
///
/// Source: CSPS, "three-phase pipelining" and "pipeline simulator".

#include <functional>
#include <span>
#include <vector>

#include "lib/ranks/parallel/levels.hpp"
#include "lib/ranks/parallel/ring_rule.hpp"

namespace pecia::parallel {

/// What a rank does for one step.
struct StepTimes {
  double tokens_s = 0, attention_s = 0, outputs_s = 0;
};

/// Seconds from the start of a layer's attention until its last output is home. `own_s`: attention
/// of the rank to its own part.
double pipeline_s(double own_s, const std::vector<StepTimes>& steps);

/// What a level is for its busiest rank where nothing is dropped, as multiples of n new and c
/// cached tokens of a rank. Work is dealt evenly to the ranks of a segment. A token goes once to
/// each rank.
struct LevelLoad {
  /// Shares of a rank's heads that it sends to ranks which have not got them yet.
  struct Sent {
    double queries = 0, new_keys = 0;
    bool operator==(const Sent&) const = default;
  };

  double new_pairs = 0;     ///< pairs of two new tokens, in n²
  double cached_pairs = 0;  ///< pairs of a new and a cached token, in n·c
  std::vector<Sent> sent;   ///< of the ranks, each once, where c = 0
  double sent_of_all = 0;   ///< the share of everything that is sent where c > 0
  double sent_home = 0;     ///< share of its heads whose outputs come from other ranks
  bool repeats_own =
      false;  ///< Geometry::nested: ranks attend the kept ones of their own part again
};

/// The loads of levels 2 and up. Ranks hold equal parts.
std::vector<LevelLoad> level_loads(const Levels& levels, Geometry geometry);

/// Tokens of a pass on each rank.
struct RankTokens {
  double rows = 0, cached = 0;
};

/// Seconds per unit of work, where the width of a head counts as one unit.
struct LevelRates {
  double s_per_pair = 0;           ///< a query of one head and a key
  std::vector<double> s_per_byte;  ///< of each level from 2 on, for an element that one rank sends
};

/// Seconds of a layer on its busiest rank, each level in its number of micro-partitions. Each
/// doubling of it makes attention a hundredth slower, since its pieces are smaller. Ranks share heads
/// that keep other numbers of keys evenly. It does not grow with rule.drop.
double layer_s(const std::vector<LevelLoad>& loads, const LevelRule& rule, const RankTokens& tokens,
               const RingShape& shape, const LevelRates& rates, const Micros& micros);

/// The number of micro-partitions of each of `levels` levels from 2 on, each from the ascending
/// `choices`, with which `seconds` is least: from the best equal numbers on, one level after the other
/// is given the number that is best for it, until nothing is faster. Of equal ones the least. Numbers
/// that are all the same are one.
Micros best_micros(std::span<const int> choices, int levels,
                   const std::function<double(const Micros&)>& seconds);

}  // namespace pecia::parallel
