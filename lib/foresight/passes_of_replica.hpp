// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The passes that a replica's scheduler makes, by their sizes.

#include <vector>

#include "lib/foresight/passes.hpp"

namespace pecia::foresight {

/// Which passes are played by all ranks. The least times of the others are taken from one (passes.hpp).
enum class HowFar {
  at_least,      ///< none
  steps_played,  ///< steps, which are short programs
  alike,         ///< none; times are those of one rank if all did as it does (Passes::alike)
  played         ///< all
};

class PassesOfReplica {
 public:
  /// `resources`: with degrees, modes and max_batch_tokens; copied. Decode shift shifts in steps of
  /// up to its threshold, and in all steps where a rule chooses it. `passes` outlives this object.
  PassesOfReplica(Passes& passes, const resources::Resources& resources, HowFar how_far);

  /// Degrees of teams: all instances; or, with teams that change, 1, 2, 4, … and all.
  /// Where bounds are sought, such teams have the times of an instance alone.
  std::vector<int> degrees() const;
  /// New tokens that a pass of such a team has at most.
  int64_t batch_tokens(int degree) const { return resources_.batch_tokens_of_team(degree); }
  /// A pass with `tokens` new tokens of each of `sequences` sequences after `cached` ones. Teams that
  /// change read one sequence, and the first instance has its keys. A ring that is chosen by rule is
  /// the one that takes less by itself.
  PassShape prompts(int degree, int64_t sequences, int64_t tokens, int64_t cached) const;
  /// A step of `sequences` sequences after about `context` tokens each: on a multiple of them, so
  /// that all instances hold equally many. Of teams that change, `masters` instances have rows.
  PassShape step(int degree, int masters, int64_t sequences, int64_t context) const;

  const PassFigures& figures(const PassShape& shape) const;

 private:
  Passes& passes_;
  resources::Resources resources_;
  HowFar how_far_;
  PassShape base_;  ///< what all shapes have in common
};

}  // namespace pecia::foresight
