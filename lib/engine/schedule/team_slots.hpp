// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Where a sequence's keys lie as its team grows, is helped, and shrinks.
/// Source: LoongServe (elastic scaling plan; proactive scale-down).
///
/// Each function changes where sequences have slots, and adds what was decided by expected times.
/// `free`: slots that instances have free before the pass.

#include <cstdint>
#include <set>
#include <vector>

#include "lib/engine/schedule/decision.hpp"
#include "lib/engine/schedule/scheduler_state.hpp"
#include "lib/engine/schedule/team_drafts.hpp"

namespace pecia::schedule {

/// Lets the team that makes these sequences' tokens have further instances, where these have no work
/// (scale-up). Some of the sequences then have their free slots there, and so their next tokens.
/// Branches of forks stay, as their slots are promised to the branches after them. Drafted tokens are
/// rows like others. Returns whether the team has grown.
bool grow(SchedulerState& state, const Selection& ready, const PassDrafts& drafts,
          std::set<int32_t>& team, std::vector<Decision>& decisions);

/// Lets instances that help to read a prompt keep an even share of it, where the answer is made
/// sooner by all of them together. Returns whether it is.
bool spread(SchedulerState& state, ActiveSequence& sequence, const parallel::Team& team,
            const Slots& free, std::vector<Decision>& decisions);

/// Lets one instance keep the whole sequence from the last chunk of a prompt on, if it has the room:
/// the one that holds most of it. All its keys pass by in that ring anyway. Then the answer needs
/// no messages, and the other instances are free. Where they would have nothing to do, and the answer
/// would take longer, the sequence stays with all. Branches of forks stay, as in grow().
void gather(SchedulerState& state, ActiveSequence& sequence, PlanItem& chunk,
            const parallel::Team& team, const Slots& free, std::vector<Decision>& decisions);

/// Gives the chunk's tokens to the instances in proportion to the room that the sequence has there.
void keep_by_room(const SchedulerState& state, PlanItem& chunk, const parallel::Team& team);

}  // namespace pecia::schedule
