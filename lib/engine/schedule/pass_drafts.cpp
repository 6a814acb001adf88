// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/pass_drafts.hpp"

#include <algorithm>

#include "lib/engine/schedule/draft_choice.hpp"

namespace pecia::schedule {
namespace {

double pairs_of_row(const SchedulerState& state, const ActiveSequence& sequence) {
  return static_cast<double>(state.map.length(sequence.id) + 1);
}

/// A token of each of these answers, without drafts.
PassWork next_tokens(const SchedulerState& state, const std::vector<Draftable>& answers) {
  PassWork work{.passes = 1};
  for (const auto& [sequence, most] : answers) {
    ++work.rows;
    work.pairs += pairs_of_row(state, *sequence);
  }
  return work;
}

/// Cuts the drafts to what should pay.
void keep_what_pays(const SchedulerState& state, const std::vector<Draftable>& answers,
                    const std::function<double(const PassWork&)>& seconds, PassDrafts& drafts) {
  std::vector<DraftOffer> offers;
  for (const auto& [sequence, most] : answers)
    if (const auto found = drafts.find(sequence->id); found != drafts.end())
      offers.push_back({std::ssize(found->second), state.drafter.rate(*sequence),
                        pairs_of_row(state, *sequence)});
  const std::vector<int64_t> tokens =
      tokens_worth(offers, next_tokens(state, answers), seconds, state.limits.has_states);
  auto next = tokens.begin();
  for (const auto& [sequence, most] : answers)
    if (const auto found = drafts.find(sequence->id); found != drafts.end())
      found->second.resize(*next++);
}

}  // namespace

int64_t most_after_next(const ActiveSequence& sequence) {
  if (!sequence.begun || sequence.again) return 0;
  const int64_t left = sequence.max_new_tokens - std::ssize(sequence.result.tokens);
  return std::min(left, sequence.room - sequence.decoded - sequence.replays) - 1;
}

PassDrafts draft_for_pass(SchedulerState& state, const std::vector<Draftable>& answers,
                          int64_t spare, const std::function<double(const PassWork&)>& seconds) {
  PassDrafts drafts;
  for (const auto& [sequence, most] : answers) {
    drafts::Draft draft = state.drafter.draft(*sequence, std::min(most, state.limits.drafts.most));
    if (!draft.tokens.empty()) drafts.emplace(sequence->id, std::move(draft.tokens));
  }
  if (state.limits.drafts.by_price && !drafts.empty())
    keep_what_pays(state, answers, seconds, drafts);
  for (auto& [sequence, tokens] : drafts) {
    tokens.resize(std::clamp<int64_t>(spare, 0, std::ssize(tokens)));
    spare -= std::ssize(tokens);
  }
  return drafts;
}

std::vector<int32_t> first_of(const PassDrafts& drafts, const ActiveSequence& sequence,
                              int64_t most) {
  const auto found = drafts.find(sequence.id);
  if (found == drafts.end()) return {};
  const int64_t count = std::clamp<int64_t>(most, 0, std::ssize(found->second));
  return {found->second.begin(), found->second.begin() + count};
}

int64_t count_replays(const Selection& answers) {
  int64_t replays = 0;
  for (const ActiveSequence* const sequence : answers) replays += sequence->replays;
  return replays;
}

void add_draft(std::span<const int32_t> drafted, PlanItem& item) {
  item.tokens.insert(item.tokens.end(), drafted.begin(), drafted.end());
  item.drafted = static_cast<int32_t>(drafted.size());
  item.rows.count += item.drafted;
}

}  // namespace pecia::schedule
