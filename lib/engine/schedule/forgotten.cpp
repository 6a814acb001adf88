// SPDX-License-Identifier: Apache-2.0
/// How sequences are forgotten, and what they read again.

#include <algorithm>
#include <utility>

#include "lib/engine/schedule/scheduler_state.hpp"

namespace pecia::schedule {
namespace {

/// What a turn has generated is read with its prompt.
std::vector<TokenRun> read_together(const std::vector<TokenRun>& runs) {
  std::vector<TokenRun> together;
  for (const TokenRun& run : runs)
    if (!together.empty() && together.back().prompt_end == run.prompt_end)
      together.back().tokens += run.tokens;
    else
      together.push_back({run.tokens, false, run.prompt_end, run.stem_end, 0});
  return together;
}

int64_t slots_of(const SlotNeeds& needs, const std::vector<TokenRun>& runs) {
  int64_t slots = 0;
  for (const TokenRun& run : runs) slots += needs.of_run(run);
  return slots;
}

/// Begins the present run: its tokens are dealt from the first instance on.
void begin_run(ActiveSequence& sequence, const SchedulerState& state) {
  const Rereading& again = *sequence.again;
  if (!again.present().generated) return;
  const bool goes_on = again.run + 1 == again.runs.size() && sequence.has_read();
  sequence.dealt.assign(state.limits.ring_size, 0);
  sequence.deal_limit = state.needs.of_generated(goes_on ? sequence.room : again.present().tokens);
}

}  // namespace

/// Says what the sequence will read again, and which slots that needs. Where the layout must not
/// matter, all is computed as it was. Elsewhere answers are read like prompts, unless that takes
/// slots that are needed for the rest.
void SchedulerState::plan_rereading(ActiveSequence& sequence, std::vector<int32_t> tokens) const {
  std::vector<TokenRun> runs = sequence.runs;
  sequence.decoded += std::exchange(sequence.reread, 0);
  if (!limits.layout_invariant) {
    std::vector<TokenRun> together = read_together(runs);
    const int64_t more = slots_of(needs, together) - slots_of(needs, runs);
    if (more <= limits.most_slots() - sequence.most) {
      sequence.reread = std::exchange(sequence.decoded, 0);
      runs = std::move(together);
    }
  }
  if (sequence.begun || sequence.is_between_turns) {
    sequence.base = slots_of(needs, runs);
    // The present turn's prompt counts whole, and its answer is no part of the base.
    const bool reads = sequence.begun && !sequence.has_read();
    if (sequence.decoded > 0 || (reads && sequence.fed > 0))
      sequence.base -= needs.of_run(runs.back());
    if (reads)
      sequence.base += needs.of_run({std::ssize(sequence.feed), false, sequence.answer_begin,
                                     sequence.current().stem_end_tokens, 0});
  }
  sequence.dealt.assign(limits.ring_size, 0);
  sequence.again.reset();
  if (!runs.empty()) sequence.again = Rereading{std::move(tokens), std::move(runs)};
}

void SchedulerState::forget(std::list<ActiveSequence>::iterator sequence) {
  if (!news.adds(sequence->id) && !(limits.elastic && own_tokens(sequence->id) == 0)) {
    ++demand.forgotten;
    if (sequence->begun) ++sequence->result.yields;
    yields.add({YieldKind::forgotten, sequence->id, row_of(*sequence), own_tokens(sequence->id)});
  }
  leave_team(*sequence);
  drop(*sequence);
  if (sequence->is_prefix && sequence->origin->prefix_again) {  // until a branch needs it
    sequence->origin->prefix_again = false;
    active.erase(sequence);
    return;
  }
  const auto later = std::ranges::upper_bound(parked, sequence->id, {}, &ActiveSequence::id);
  parked.splice(later, active, sequence);
}

/// What the sequence would compute again in any case is read with the rest.
void SchedulerState::read_replays_again(ActiveSequence& sequence, std::vector<int32_t>& tokens) {
  if (sequence.replays == 0) return;
  const auto end = sequence.unfed.begin() + sequence.replays;
  tokens.insert(tokens.end(), sequence.unfed.begin(), end);
  sequence.unfed.erase(sequence.unfed.begin(), end);
  std::vector<TokenRun>& runs = sequence.runs;
  if (runs.empty() || !runs.back().generated || runs.back().prompt_end != sequence.answer_begin)
    runs.push_back({0, true, sequence.answer_begin, 0, sequence.deal_shift});
  runs.back().tokens += sequence.replays;
  if (sequence.begun) sequence.decoded += sequence.replays;
  sequence.replays = 0;
}

/// Takes what the sequence has in the cache or parked from it.
void SchedulerState::drop(ActiveSequence& sequence) {
  std::vector<int32_t>& cached =
      sequence.is_branch() ? sequence.own_cached : sequence.origin->cached;
  std::vector<int32_t> tokens = std::exchange(cached, {});
  if (sequence.again) tokens = std::move(sequence.again->tokens);
  read_replays_again(sequence, tokens);
  if (!sequence.is_branch()) sequence.origin->computed_s = 0;
  if (!tokens.empty()) sequence.restore_end = 0;  // else it still begins with what was saved
  remove(sequence.id);
  std::erase_if(news.turns, [&](const auto& told) { return told.sequence == sequence.id; });
  plan_rereading(sequence, std::move(tokens));
}

void SchedulerState::forget_prefix(const RequestState& fork) {
  for (ActiveSequence& branch : parked)
    if (branch.origin.get() == &fork && map.contains(branch.id)) {
      yields.add({YieldKind::forgotten, branch.id, row_of(branch), own_tokens(branch.id)});
      ++demand.forgotten;
      drop(branch);
    }
  yields.add({YieldKind::forgotten, fork.prefix, first_row(fork), own_tokens(fork.prefix)});
  ++demand.forgotten;
  remove(fork.prefix);
}

void SchedulerState::read_prefix_again(const std::shared_ptr<RequestState>& fork,
                                       const Slots& reserved) {
  const batch::Turn& turn = fork->request.turns.front();
  const auto tokens = std::ssize(turn.tokens);
  ActiveSequence prefix;
  prefix.origin = fork;
  prefix.id = fork->prefix;
  prefix.is_prefix = true;
  prefix.end = 1;
  prefix.came_back = true;
  prefix.runs = {{tokens, false, tokens, turn.stem_end_tokens, 0}};
  prefix.again = Rereading{turn.tokens, prefix.runs};
  yields.add({YieldKind::read_again, prefix.id, turn.row, tokens});
  fork->cached.clear();
  fork->computed_s = 0;
  fork->prefix_again = true;
  const auto later = std::ranges::upper_bound(active, prefix.id, {}, &ActiveSequence::id);
  ActiveSequence& read = *active.insert(later, std::move(prefix));
  introduce(read, reserved);
  if (limits.elastic) moved(read);
}

void SchedulerState::bring_forgotten_back(std::list<ActiveSequence>::iterator sequence,
                                          const Slots& reserved) {
  introduce(*sequence, reserved);
  if (yields.outside().is_forgotten(sequence->id))
    yields.add({YieldKind::read_again, sequence->id, row_of(*sequence),
                sequence->again ? sequence->again->left() : 0});
  if (sequence->again) begin_run(*sequence, *this);
  if (sequence->begun && sequence->samples) tell_of_turn(*sequence);
  put_back(sequence);
}

bool SchedulerState::has_read_again(ActiveSequence& sequence, int64_t tokens) {
  demand.reread_tokens += tokens;
  Rereading& again = *sequence.again;
  again.done += tokens;
  if (again.left_of_run() > 0) return false;
  again.run_begin += std::exchange(again.done, 0);
  if (++again.run < again.runs.size()) {
    begin_run(sequence, *this);
    return false;
  }
  const bool goes_on = sequence.has_read() && again.runs.back().generated;
  sequence.again.reset();
  if (!goes_on) sequence.dealt.assign(limits.ring_size, 0);
  sequence.deal_limit = needs.of_generated(sequence.room);
  return true;
}

}  // namespace pecia::schedule
