// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The passes that a replica's scheduler makes, and how long any of them takes: on lines through a
/// few that span those of a batch.

#include <map>
#include <optional>
#include <vector>

#include "lib/simulation/pass_cost.hpp"

namespace pecia::simulation {

/// Which passes are replayed with all ranks. Costs of the others are told by one rank's program.
enum class Fidelity {
  lower_bound,     ///< none (PassCosts::lower_bound)
  steps_replayed,  ///< steps, which are short programs; others as above
  one_rank,        ///< none; as one rank estimates them (PassCosts::estimate)
  replayed         ///< all
};

/// A replica's passes by their sizes.
class ReplicaPasses {
 public:
  /// `resources`: with degrees, modes and max_batch_tokens; copied. Decode shift shifts in steps of
  /// up to its threshold, and in all steps where a rule chooses it. `costs` outlives this object.
  ReplicaPasses(PassCosts& costs, const resources::Resources& resources, Fidelity fidelity);

  /// Degrees of teams: all instances; or, with teams that change, 1, 2, 4, … and all.
  /// Where bounds are sought, such teams have the times of an instance alone.
  std::vector<int> degrees() const;
  /// New tokens that a pass of such a team has at most.
  int64_t batch_tokens(int degree) const { return resources_.batch_tokens_of_team(degree); }
  /// A pass with `tokens` new tokens of each of `sequences` sequences after `cached` ones. Teams that
  /// change read one sequence, and the first instance has its keys. A ring that is chosen by rule is
  /// the one that the cluster's ring_rule names, or the one that takes less by itself.
  PassShape prefill(int degree, int64_t sequences, int64_t tokens, int64_t cached) const;
  /// A step of `sequences` sequences after about `context` tokens each: on a multiple of them, so
  /// that all instances hold equally many. Of teams that change, `masters` instances have rows.
  PassShape step(int degree, int masters, int64_t sequences, int64_t context) const;

  const PassCost& cost(const PassShape& shape) const;

 private:
  PassCosts& costs_;
  resources::Resources resources_;
  Fidelity fidelity_;
  PassShape base_;                                   ///< what all shapes have in common
  std::optional<parallel::FittedRule> fitted_rule_;  ///< of the cluster, for such rings
};

/// The lengths between which the passes of a batch lie.
struct PassLengths {
  int64_t longest_prompt = 1;  ///< tokens, with the cached ones
  int64_t prompts = 1;         ///< of all requests of a replica
  int64_t sequences = 1;       ///< that decode together, at most
  int64_t context = 1;         ///< tokens of an answer's sequence, on average
  int64_t usual_prompt = 0;    ///< new tokens of a turn, on average; 0: those of the longest prompt
};

/// Effort of replaying the passes of a ReplicaCostModel (PassCosts::replay_effort).
double replay_effort(PassCosts& costs, const resources::Resources& resources,
                     const PassLengths& lengths);

class ReplicaCostModel {
 public:
  /// `resources`: as ReplicaPasses takes them.
  ReplicaCostModel(PassCosts& costs, const resources::Resources& resources,
                   const PassLengths& lengths, Fidelity fidelity);

  /// Times on lines through those passes, of teams of all instances. Of teams that change, lines go
  /// through passes of 1, 2, 4, … and all instances, and the rates of other degrees lie between.
  const schedule::TeamTimes& teams() const { return *teams_; }
  /// The largest relative error of those lines at one of these passes.
  double error() const { return error_; }
  /// What a team's work of this kind takes, mixed of those passes and scaled to the line's time.
  /// Bytes and ranks are as in PassCosts.
  PassCost of(schedule::PassKind kind, int degree, const schedule::PassWork& work) const;

 private:
  struct OfDegree {
    std::vector<PassCost> prefill, decode;
    const std::vector<PassCost>& of(schedule::PassKind kind) const {
      return kind == schedule::PassKind::prefill ? prefill : decode;
    }
  };

  std::map<int, OfDegree> by_degree_;
  std::optional<schedule::TeamTimes> teams_;
  double error_ = 0;
};

/// How often each of some passes is done so that their work adds up to `work`, as nearly as numbers
/// that are not negative can.
std::vector<double> mix_of(const std::vector<schedule::PassWork>& passes,
                           const schedule::PassWork& work);

}  // namespace pecia::simulation
