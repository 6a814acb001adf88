// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a run takes for all that its job leaves open of the layout: grid, modes, teams that change,
/// tokens of a pass, and the tokens up to which passes shift.

#include <string>
#include <vector>

#include "lib/simulation/sweep.hpp"

namespace pecia::simulation {

struct Choice {
  LayoutForecast chosen;  ///< `parallel` has a threshold of shifts, where it shifts
  LayoutForecast by_rule;
  std::vector<LayoutForecast> others;  ///< the best of the other layouts that were played
  bool tokens_by_rule = true;          ///< chosen.resources.max_batch_tokens are the automatic ones
  Aim aim = Aim::batch_end;
  LayoutCounts counts;
};

/// Degrees that the job gives; the others are to be found.
KeptDegrees kept_degrees(const job::Job::Parallel& parallel);

/// The layout that resources::resolve_grid gives the job, without foresight. Throws as that does.
job::Job::Parallel layout_by_rule(const Scenario& scenario, int ranks);

/// Plays the batch in every legal layout of these ranks that may be the best. An alternative in modes,
/// in teams or in the length of passes must beat the rule by `least_gain`; where the grid itself is
/// open, the best forecast decides, as no rule knows a better grid. Where requests arrive one by one,
/// the best layout is the one in which they wait least for their first token. Absent where the
/// batch fits in no layout. Throws InputError where no layout is legal.
std::optional<Choice> choose(PassCosts& costs, Batches& batches, int ranks);

/// "dp 4 × tp 2, tp+tp".
std::string layout_text(const LayoutForecast& plan);

/// "dp 2, single: 42 s foreseen, by rule (cp 2, …) 61 s", for people.
std::string choice_text(const Choice& choice);

}  // namespace pecia::simulation
