// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/team_drafts.hpp"

#include <algorithm>
#include <cmath>

namespace pecia::schedule {
namespace {

/// Tokens that may be drafted of the sequence's answer after its next one, on some instance.
int64_t most_for_team(const SchedulerState& state, const ActiveSequence& sequence) {
  int64_t room = 0;
  for (int32_t instance = 0; instance < state.limits.ring_size; ++instance)
    room = std::max(room, room_on(state, sequence, instance));
  return std::min(most_after_next(sequence), room - sequence.replays - 1);
}

/// Seconds of a pass of answers by a team of `degree` instances, `answers` of them on as many masters
/// as it can have.
double team_seconds(const KnownTimes& times, int degree, int64_t answers, const PassWork& pass) {
  if (!times.teams) return times.passes->decode.seconds({1, pass.rows, pass.pairs / degree});
  const int masters = static_cast<int>(std::min<int64_t>(answers, degree));
  return times.teams->decode_s(degree, masters, std::llround(pass.rows), std::llround(pass.pairs));
}

}  // namespace

int64_t room_on(const SchedulerState& state, const ActiveSequence& sequence, int32_t instance) {
  return state.map.reserved(sequence.id, instance) - state.map.held(sequence.id, instance);
}

PassDrafts draft_for_team(SchedulerState& state, const Selection& ready, int degree,
                          int64_t spare) {
  if (!state.limits.drafts.on()) return {};
  std::vector<Draftable> answers;
  for (ActiveSequence* const sequence : ready)
    answers.push_back({sequence, most_for_team(state, *sequence)});
  return draft_for_pass(state, answers, spare, [&](const PassWork& pass) {
    return team_seconds(state.times, degree, std::ssize(answers), pass);
  });
}

std::vector<int32_t> drafted_on(const SchedulerState& state, const PassDrafts& drafts,
                                const ActiveSequence& sequence, int32_t instance) {
  return first_of(drafts, sequence, room_on(state, sequence, instance) - sequence.replays - 1);
}

DraftedRows rows_with(const SchedulerState& state, const PassDrafts& drafts,
                      const Selection& ready) {
  DraftedRows all;
  for (const ActiveSequence* sequence : ready) {
    const auto found = drafts.find(sequence->id);
    const int64_t drafted = found == drafts.end() ? 0 : std::ssize(found->second);
    const int64_t rows = sequence->replays + 1 + drafted;
    all.rows += rows;
    all.pairs += rows * state.map.length(sequence->id);
  }
  return all;
}

}  // namespace pecia::schedule
