// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Which instances read a prompt together where teams change, how far in one pass, and whether the
/// answers on them go first; the latter also where all instances are one team. Functions of the state
/// and its times, which add what was decided.

#include <cstdint>
#include <set>
#include <vector>

#include "lib/engine/schedule/decision.hpp"
#include "lib/engine/schedule/scheduler_state.hpp"

namespace pecia::schedule {

/// Answers under way on an instance.
struct InstanceAnswers {
  int64_t count = 0, context = 0;  ///< context: their tokens so far, together
  double tokens = 0;               ///< still expected of the longest
};

/// By instance; without changing teams, the first stands for all.
std::vector<InstanceAnswers> answers_by_instance(const SchedulerState& state);

/// Takes out prompts whose instances' answers go on before they are read further, where requests are
/// to wait least. Answers never do where a few short passes would end the prompt, so that short
/// requests wait for nobody.
void let_answers_first(const SchedulerState& state, const std::vector<InstanceAnswers>& answers,
                       double now, Selection& prompts, std::vector<Decision>& decisions);

/// The sequence's own instances, and then others that help to read its prompt, none of them of
/// `wanted`. These have no prompts to read; where requests are to wait least, their answers may wait,
/// and the pass in which they are may have to end first. Without times of teams all idle ones help.
std::vector<int32_t> readers_of(const SchedulerState& state, const ActiveSequence& sequence,
                                const std::vector<InstanceAnswers>& answers,
                                const std::set<int32_t>& wanted, std::vector<Decision>& decisions);

/// Most tokens of a pass of `degree` instances that is to be short, so that others can go before what
/// comes after it. It reads this prompt first.
int64_t short_pass_tokens(const SchedulerState& state, int degree, const ActiveSequence& first);

/// Most tokens of a pass in which the team reads this prompt first. Where requests are to wait least,
/// it is short. Else it ends when another instance should have nothing more to do, which can help
/// from the next pass on. Since that is only expected, passes stay short from long before. They may
/// be longer than where requests wait least, so that they cost less than they gain.
/// `busy_until`: by instance, when its pass should have ended, in seconds.
int64_t most_tokens(const SchedulerState& state, const parallel::Team& team,
                    const ActiveSequence& first, const std::vector<double>& busy_until, double now);

}  // namespace pecia::schedule
