// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How long the passes of a replica take on a described cluster, by their size, so that a batch can
/// be played there (schedule/simulate.hpp).

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "lib/foresight/replica_passes.hpp"
#include "lib/schedule/team_times.hpp"

namespace pecia::foresight {

/// Passes of all the replica's instances. Some sizes are played, each when it is first asked for.
/// The sizes between them take times on planes between theirs, and so do larger ones.
///
///     new tokens of a pass      max_batch_tokens, a quarter of it, a sixteenth, …
///     sequences of a step       1, cp, 4·cp, … up to max_sequences
///     tokens before these       none (a step: a few), 1/16, 1/4 and all of the longest sequence
///
/// At a given number of tokens before each new one on average, a pass's work is linear in its new
/// tokens, and so are the times between two sizes. Functions throw what foresee throws.
class ForeseenPasses {
 public:
  /// The replica and the cluster outlive this object. `longest`: tokens of the longest sequence, at
  /// least 1. Its resources have max_sequences, too.
  ForeseenPasses(const Replica& replica, const machines::Cluster& cluster, int64_t longest);

  /// Seconds to read `tokens` ≥ 1 of one prompt after `cached` ones, in one pass.
  double prefill_s(double tokens, double cached);
  /// Seconds of a step that samples a token of `sequences` ≥ 1, which have `context` tokens each on
  /// average.
  double decode_s(double sequences, double context);
  /// Seconds of a pass of a scheduler. A mixed pass takes as long as its two kinds of rows together.
  double seconds(const schedule::Plan& plan);

  /// Rates of the kind of pass that come close to all sizes that are played. `estimate`: what they
  /// are where those sizes cannot tell them apart.
  schedule::PassRates fitted(schedule::PassKind kind, const schedule::PassRates& estimate);

  int64_t played() const { return static_cast<int64_t>(played_.size()); }

 private:
  struct Size {
    schedule::PassKind kind;
    int64_t rows, before;
    auto operator<=>(const Size&) const = default;
  };
  schedule::Plan plan_of(const Size& size, parallel::Ring ring) const;
  double played_s(const Size& size);
  double between(schedule::PassKind kind, double rows, double mean_context);

  const Replica& replica_;
  const machines::Cluster& cluster_;
  std::vector<int64_t> tokens_, sequences_;  ///< of passes that are played, in ascending order
  std::vector<int64_t> cached_, contexts_;   ///< before their rows
  std::map<Size, double> played_;            ///< seconds
};

/// Times of the replica's passes for schedule::simulate, fitted to passes that are played. They are
/// those of all its instances together, or, with teams that change, those of teams of 1, 2, 4, … and
/// all instances; rates of other degrees lie on lines between theirs. There a team reads a prompt of
/// which one instance keeps the keys, and makes tokens with one master or as many as it has
/// instances, on which the keys lie evenly. `longest` is as above.
schedule::TeamTimes team_times(const Replica& replica, const machines::Cluster& cluster,
                               int64_t longest);

}  // namespace pecia::foresight
