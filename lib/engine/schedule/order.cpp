// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/order.hpp"

#include <algorithm>

#include "lib/engine/schedule/elastic_urgency.hpp"

namespace pecia::schedule {

Order::Order(const SchedulerLimits& limits)
    : by_time_(limits.waits_least() && limits.parts.by_due) {}

std::optional<double> Order::patience_s(const SchedulerState& state,
                                        const batch::Request& request) const {
  if (!by_time_) return {};
  return due_s(0,
               state.times.teams->prefill_s(state.limits.least_readers(), 0, first_tokens(request),
                                            state.limits.max_batch_tokens));
}

size_t Order::place(const SchedulerState& state, const RequestState& request) const {
  if (!by_time_) return state.waiting.size();
  const auto after = std::ranges::upper_bound(state.waiting, request.due_s(), {},
                                              [](const auto& waiting) { return waiting->due_s(); });
  return after - state.waiting.begin();
}

Selection Order::prompts(SchedulerState& state) const {
  Selection prompts;
  const bool overlaps = state.limits.overlaps();
  for (ActiveSequence& sequence : state.active)
    if ((sequence.begun || sequence.again) && sequence.feeding() &&
        (sequence.in_pass == 0 || (overlaps && !sequence.again)))
      prompts.push_back(&sequence);
  const auto due = [](const ActiveSequence* prompt) { return prompt->origin->due_s(); };
  if (by_time_) std::ranges::stable_sort(prompts, {}, due);
  return prompts;
}

}  // namespace pecia::schedule
