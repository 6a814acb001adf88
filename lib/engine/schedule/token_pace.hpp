// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The policy of `batch.objective: {tbt: t}`: no answer waits longer than t for its next token. All
/// functions do nothing without that objective.
///
/// Answers wait for a pass with prompts on their instances, or ride in it (batch.policy: chunked).
/// Those that have waited for one have their token before the next one begins. So of a prompt a pass
/// reads as much as leaves time for the pass of tokens after it, by the expected times of both. The
/// time since the last token counts, too. Where that is less than 64 rows of each instance, the prompt
/// is read on all the same: by these, or by more if the pass takes no more than twice as long as with
/// none, as where keys of a long prompt travel.

#include <set>

#include "lib/engine/schedule/scheduler_state.hpp"

namespace pecia::schedule {

/// Instances with answers that have waited for a pass with prompts since their last token, and do not
/// wait for another one now. No prompt is read there before they have the next one. Without changing
/// teams {0} stands for all.
std::set<int32_t> instances_of_waiting(const SchedulerState& state);
/// Takes out prompts on these instances.
void let_waiting_first(const SchedulerState& state, Selection& prompts);

/// Notes that answers on the team's instances wait for its pass, which reads prompts: those that are
/// not in it.
void let_wait(SchedulerState& state, const parallel::Team& team);

/// How much of prompts a pass has time for.
class TokenPace {
 public:
  /// `plan`: of a team, with the tokens of the answers that ride. `busy_until`: by instance, when its
  /// pass should have ended, where teams change. A pass that holds up an answer with others of its
  /// instances in one with prompts ends no later than that.
  TokenPace(const SchedulerState& state, const Plan& plan, double now,
            const std::vector<double>& busy_until = {});

  /// Rows of a prompt beside what the pass has already: at most `count`, after `first` cached ones,
  /// in whole `unit`s; 0: too few are left, and the pass reads another prompt. `ends`: `count` rows
  /// end the prompt, and its answer begins.
  int64_t rows(int64_t first, int64_t count, int64_t unit, bool ends) const;
  /// Takes in a chunk of the pass.
  void add(int64_t first, int64_t count, bool ends);

 private:
  double seconds_after(bool one_more) const;
  int64_t least_of_late_pass(int64_t first, int64_t count) const;
  PassWork with(int64_t first, int64_t count) const;

  const TeamTimes& times_;
  bool elastic_;
  int degree_ = 1, workers_ = 1;
  double left_s_;                      ///< until the first of the answers is to have its next token
  double riders_s_ = 0;                ///< that ride in the pass
  PassWork prompts_ = {};              ///< in the pass so far, of its busiest instance
  int64_t waiting_ = 0, context_ = 0;  ///< answers that wait for the pass; their tokens
  int answering_ = 1;                  ///< instances that have them
  int64_t ended_ = 0;                  ///< prompts that end in the pass
  bool in_time_ = false;               ///< the pass must not be late
};

}  // namespace pecia::schedule
