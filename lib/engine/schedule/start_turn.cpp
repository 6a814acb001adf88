// SPDX-License-Identifier: Apache-2.0
/// How a turn begins.

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "lib/base/core/error.hpp"
#include "lib/engine/schedule/scheduler_state.hpp"

namespace pecia::schedule {
namespace {

int64_t sum_of_tokens(std::span<const int32_t> tokens) {
  return std::accumulate(tokens.begin(), tokens.end(), int64_t{0});
}

void append(std::vector<int32_t>& to, std::span<const int32_t> tokens) {
  to.insert(to.end(), tokens.begin(), tokens.end());
}

/// Notes the turns that an earlier start has finished, which are read with the next one.
void read_finished_turns(ActiveSequence& sequence) {
  const auto& turns = sequence.request().turns;
  while (!sequence.is_prefix && sequence.turn < sequence.end && turns[sequence.turn].finished) {
    const batch::Turn& done = turns[sequence.turn++];
    append(sequence.unfed, done.tokens);
    append(sequence.unfed, done.answer.tokens);
  }
}

/// Begins the answer, or goes on with what an earlier start has of it.
void begin_answer(ActiveSequence& sequence, const SchedulerState& state) {
  const SchedulerLimits& limits = state.limits;
  const batch::Turn& turn = sequence.current();
  sequence.result = turn.answer;
  sequence.pooled.assign(turn.spans.size(), {});
  sequence.fault.clear();
  sequence.result.prompt_tokens = prompt_tokens(turn);
  sequence.result.truncated_tokens = turn.truncated_tokens;
  sequence.result.cached_tokens = static_cast<int32_t>(sequence.answer_begin) - prompt_tokens(turn);
  sequence.max_new_tokens =
      std::min<int64_t>(turn.max_new_tokens, limits.max_positions - sequence.answer_begin);
  if (!limits.on_demand) sequence.room = sequence.longest_room();
  sequence.deal_limit = state.needs.of_generated(sequence.room);
  sequence.decoded = sequence.reread = 0;
  sequence.dealt.assign(limits.ring_size, 0);
  if (limits.layout_invariant) {
    sequence.deal_shift = sum_of_tokens(std::span(turn.tokens).subspan(turn.stem_end_tokens));
    if (turn.shared_tokens > 0 && turn.stem_end_tokens == 0)  // as of the whole prompt
      sequence.deal_shift += sum_of_tokens(sequence.request().turns.front().tokens);
  }
  sequence.earlier_decode_s = turn.answer.decode_s;
  sequence.stop_strings.reset();
  if (!turn.stop.empty()) {
    PECIA_CHECK(limits.detokenizer, "stop strings without a detokenizer");
    sequence.stop_strings.emplace(*limits.detokenizer, turn.stop);
    for (const int32_t token : sequence.result.tokens) sequence.stop_strings->read(token);
  }
  sequence.shape.reset();
  if (!turn.shape.empty()) {
    PECIA_CHECK(limits.grammars, "an answer with a shape, without grammars");
    sequence.shape = limits.grammars->matcher(turn.shape);
    for (const int32_t token : sequence.result.tokens) sequence.shape->accept(token);
  }
  if (sequence.continues_prefix()) sequence.answer_s = sequence.origin->prefix_answered_s;
  const auto given = std::ssize(sequence.result.tokens);
  sequence.samples =
      sequence.max_new_tokens > given && !(sequence.is_prefix && (given > 0 || turn.finished));
}

/// Says which tokens the turn's prefill computes, and how many of them are read from a save.
void set_feed(ActiveSequence& sequence, const SchedulerState& state) {
  const std::vector<int32_t>& answered = sequence.result.tokens;
  std::span<const int32_t> prompt;
  if (!sequence.continues_prefix()) prompt = sequence.current().tokens;
  if (sequence.unfed.empty() && (sequence.is_prefix || answered.empty())) {
    sequence.feed = prompt;
  } else if (sequence.continues_prefix() && sequence.origin->prefix_answered_s) {
    sequence.unfed = answered;  // the prefix has just given it: it is decoded
  } else {
    append(sequence.unfed, prompt);
    // A prefix is fed its prompt alone. A branch is fed the answer that an earlier start began.
    if (!sequence.is_prefix) append(sequence.unfed, answered);
    sequence.joined = std::exchange(sequence.unfed, {});
    sequence.feed = sequence.joined;
  }
  sequence.fed = sequence.restore_end = 0;
  const batch::SavedKv& saved = sequence.request().saved;
  // The last known token is always fed, since its output is not in the cache, but for one that only
  // makes a state.
  const bool all = state.limits.has_states && needs_no_last_output(sequence.request());
  const int64_t most = std::ssize(sequence.feed) - (all ? 0 : 1);
  if (state.map.length(sequence.id) == 0 && !sequence.is_branch())
    sequence.restore_end =
        std::min(saved.tokens, most) / state.limits.restore_unit() * state.limits.restore_unit();
  if (sequence.restore_end < saved.least || needs_all_outputs(sequence.request()))
    sequence.restore_end = 0;
}

}  // namespace

void SchedulerState::start_turn(ActiveSequence& sequence) {
  read_finished_turns(sequence);
  auto& turns = sequence.request().turns;
  if (sequence.turn == sequence.end || !turns[sequence.turn].refused.empty()) return;

  const batch::Turn& turn = turns[sequence.turn];
  const int64_t cached = map.length(sequence.id);
  sequence.prompt_begin =
      sequence.continues_prefix() ? 0 : cached + static_cast<int64_t>(sequence.unfed.size());
  sequence.answer_begin = sequence.continues_prefix()
                              ? cached
                              : sequence.prompt_begin + static_cast<int64_t>(turn.tokens.size());
  if (limits.max_positions - sequence.answer_begin < (turn.max_new_tokens > 0 ? 1 : 0)) {
    refuse_from(
        sequence.request(), sequence.turn,
        fmt::format("{} tokens with what came before, the model's length is {}: shorten the "
                    "prompt, or set model.rope_scaling; then --retry-failed",
                    sequence.answer_begin, limits.max_positions));
    return;
  }
  begin_answer(sequence, *this);
  set_feed(sequence, *this);
  sequence.begun = sequence.changed = true;
  sequence.timed = false;
  sharing.requests += turn.shared_tokens > 0;
  sharing.shared_tokens += turn.shared_tokens;
  if (turn.shared_tokens == 0) sharing.repeated_tokens += turn.stem_end_tokens;
  if (sequence.samples) tell_of_turn(sequence);
}

}  // namespace pecia::schedule
