// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What the turns of a request see.

#include "lib/schedule/simulate.hpp"

namespace pecia::foresight {

/// Does `each(turn, tokens before it)` for the turns of a request. Of a fork's first turn, the later
/// ones see the prompt alone.
template <typename Each>
void for_turns(const schedule::SimulatedRequest& request, const Each& each) {
  const bool chain = request.followup == io::Followup::chain;
  int64_t before = 0, of_branch = 0;
  for (size_t i = 0; i < request.turns.size(); ++i) {
    const schedule::SimulatedTurn& turn = request.turns[i];
    each(turn, before + of_branch);
    const int64_t tokens = turn.prompt_tokens + turn.answer_tokens;
    if (chain)
      before += tokens;
    else if (i == 0)
      before = turn.prompt_tokens;
    else
      of_branch = turn.goes_on ? of_branch + tokens : 0;
  }
}

}  // namespace pecia::foresight
