// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Passes of one team of all instances, one after the other.
///
/// prefill_first: prompts are read as long as there are any, then all sequences decode together.
/// chunked (Sarathi): every sequence that decodes rides in every pass as one token, and chunks of
/// prompts fill the rest of max_batch_tokens, in the order in which their requests began. Riders
/// never exceed max_batch_tokens (vLLM leaves that to its users), since each of them was in the pass
/// before. A prompt without room waits until enough answers have ended. Drafted tokens take half of
/// max_batch_tokens at most.
///
/// In stages (parallel.pp) several passes are under way (pipeline.hpp): prompts go in chunks of equal
/// work, and answers in groups.
///
/// With batch.objective: ttft passes are short, and answers may go before a long prompt, as where
/// teams change. Where results depend on the cuts of a prompt, passes have their whole length.

#include "lib/engine/schedule/former.hpp"

namespace pecia::schedule {

class RingFormer : public Former {
 public:
  explicit RingFormer(const SchedulerLimits& limits);

  std::optional<Plan> form(SchedulerState& state, const Selection& prompts,
                           const PassBudget& budget, double now) override;

 private:
  bool restore_next(Pass& pass);
  bool compute(Pass& pass, const Selection& all);
  Reading reading(const Pass& pass, const Selection& prompts) const;
  static void note_planned(Pass& pass);
  void decode(Pass& pass) const;
  Exchange exchange_of(const SchedulerState& state, const parallel::PassSequence& chunk,
                       parallel::RingLoad riders) const override;
  void place(Pass& pass, ActiveSequence& sequence, PlanItem& chunk, bool last) override;
};

}  // namespace pecia::schedule
