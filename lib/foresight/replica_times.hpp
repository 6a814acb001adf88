// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How long any pass of a replica takes, from a few passes that span those of a batch.

#include <map>
#include <optional>
#include <vector>

#include "lib/foresight/passes_of_replica.hpp"

namespace pecia::foresight {

/// The lengths between which the passes of a batch lie.
struct PassSpan {
  int64_t longest_prompt = 1;  ///< tokens, with the cached ones
  int64_t prompts = 1;         ///< of all requests of a replica
  int64_t sequences = 1;       ///< that decode together, at most
  int64_t context = 1;         ///< tokens of an answer's sequence, on average
  int64_t usual_prompt = 0;    ///< new tokens of a turn, on average; 0: those of the longest prompt
};

/// What it costs to play the passes of ReplicaTimes, in operations (Passes::cost).
double cost_of_times(Passes& passes, const resources::Resources& resources, const PassSpan& span);

class ReplicaTimes {
 public:
  /// `resources`: as PassesOfReplica takes them.
  /// With HowFar::alike, no pass is played.
  ReplicaTimes(Passes& passes, const resources::Resources& resources, const PassSpan& span,
               HowFar how_far);

  /// Times on lines through those passes, of teams of all instances. Of teams that change, lines go
  /// through passes of 1, 2, 4, … and all instances, and the rates of other degrees lie between.
  const schedule::TeamTimes& teams() const { return *teams_; }
  /// The largest relative error of those lines at one of these passes.
  double error() const { return error_; }
  /// What a team's work of this kind takes, mixed of those passes and scaled to the line's time.
  /// Bytes and ranks are as in Passes.
  PassFigures of(schedule::PassKind kind, int degree, const schedule::PassWork& work) const;

 private:
  struct Played {
    std::vector<PassFigures> prefill, decode;
    const std::vector<PassFigures>& of(schedule::PassKind kind) const {
      return kind == schedule::PassKind::prefill ? prefill : decode;
    }
  };

  std::map<int, Played> played_;  ///< by degree
  std::optional<schedule::TeamTimes> teams_;
  double error_ = 0;
};

/// How often each of some passes is done so that their work adds up to `work`, as nearly as numbers
/// that are not negative can.
std::vector<double> mix_of(const std::vector<schedule::PassWork>& passes,
                           const schedule::PassWork& work);

}  // namespace pecia::foresight
