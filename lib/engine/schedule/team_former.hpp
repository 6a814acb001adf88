// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Passes of teams that change. A sequence has the instances on which it has slots. It can take part
/// in a pass only if all of them do, so a pass's team is made of the instances of its sequences. Each
/// plan is of one team, and other passes may be under way.
/// Source: LoongServe (elastic instances; multi-master distributed decoding).

#include <map>
#include <set>
#include <vector>

#include "lib/engine/schedule/former.hpp"
#include "lib/engine/schedule/team_drafts.hpp"
#include "lib/engine/schedule/team_readers.hpp"
#include "lib/engine/schedule/told_sequences.hpp"

namespace pecia::schedule {

class TeamFormer : public Former {
 public:
  explicit TeamFormer(const SchedulerLimits& limits);

  std::optional<Plan> form(SchedulerState& state, const Selection& prompts,
                           const PassBudget& budget, double now) override;

 private:
  bool restore_next(Pass& pass);
  bool move_keys(Pass& pass, std::set<int32_t>& called);
  bool read_first(Pass& pass, const Selection& prompts, const std::vector<InstanceAnswers>& answers,
                  std::set<int32_t>& called);
  void ride(Pass& pass, const std::vector<int32_t>& instances);
  bool make_tokens(Pass& pass, const Selection& prompts, const std::set<int32_t>& called,
                   bool may_grow);
  size_t most_masters(const SchedulerState& state, const Selection& ready, const PassDrafts& drafts,
                      size_t degree);
  void add_token(Pass& pass, ActiveSequence& sequence, int32_t master,
                 const std::vector<int32_t>& drafted);
  Exchange exchange_of(const SchedulerState&, const parallel::PassSequence&,
                       parallel::RingLoad) const override {
    return {parallel::AttentionExchange::pass_kv};
  }
  void place(Pass& pass, ActiveSequence& sequence, PlanItem& chunk, bool last) override;
  void send_keys(Pass& pass, const Selection& prompts);

  ToldSequences told_;
  std::vector<double> busy_until_;  ///< by instance: when its pass should have ended
  Slots left_;  ///< slots that keys leave in the pass that is formed: they are free after it
};

}  // namespace pecia::schedule
