// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a pass drafts of the answers that it goes on with.

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "lib/engine/schedule/scheduler_state.hpp"

namespace pecia::schedule {

/// Drafted tokens, by sequence. Sequences of which nothing is drafted are not in it.
using PassDrafts = std::map<int64_t, std::vector<int32_t>>;

/// An answer that goes on in the pass, and the most tokens that may be drafted of it.
struct Draftable {
  ActiveSequence* sequence = nullptr;
  int64_t most = 0;
};

/// The most tokens that may be drafted of the sequence's answer after its next one, wherever they are
/// computed. What it computes again comes before these.
int64_t most_after_next(const ActiveSequence& sequence);

/// Drafts all of these answers, `spare` tokens at most. With DraftLimits::by_price as many tokens are
/// tried as should give most tokens a second (draft_choice.hpp) by `seconds` of a pass.
PassDrafts draft_for_pass(SchedulerState& state, const std::vector<Draftable>& answers,
                          int64_t spare, const std::function<double(const PassWork&)>& seconds);

/// Tokens of the sequence's draft, the first `most` of it.
std::vector<int32_t> first_of(const PassDrafts& drafts, const ActiveSequence& sequence,
                              int64_t most);
/// The tokens that these answers compute again.
int64_t count_replays(const Selection& answers);
/// Adds drafted tokens to an item that has the next token of the answer.
void add_draft(std::span<const int32_t> drafted, PlanItem& item);

}  // namespace pecia::schedule
