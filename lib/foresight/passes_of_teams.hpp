// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Passes of teams that change (`parallel.cp: elastic`), as their scheduler plans them. `passes` are
/// those of a replica that has the team's instances alone.

#include "lib/execute/trial_passes.hpp"

namespace pecia::foresight {

/// All instances read `tokens` new tokens of a prompt after `cached` ones. The first instance has the
/// cached tokens' keys, and keeps those of the new ones.
schedule::Plan read_by_team(const execute::TrialPasses& passes, int64_t tokens, int64_t cached);

/// A step of `sequences` sequences of `tokens` tokens each, which lie evenly on all instances. The
/// first `masters` instances have rows, dealt evenly to them.
schedule::Plan step_of_team(const execute::TrialPasses& passes, int masters, int64_t sequences,
                            int64_t tokens);

}  // namespace pecia::foresight
