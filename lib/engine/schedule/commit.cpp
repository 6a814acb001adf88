// SPDX-License-Identifier: Apache-2.0
/// Takes in the outcomes of a finished pass.

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "lib/base/core/error.hpp"
#include "lib/engine/schedule/scheduler_state.hpp"

namespace pecia::schedule {
namespace {

using Item = std::list<ActiveSequence>::iterator;  ///< the sequence of a plan's item

template <typename T>
void copy_row(const std::vector<T>& from, int64_t row, int64_t width, std::vector<T>& to,
              int64_t to_row) {
  if (from.empty()) return;
  std::copy_n(from.begin() + row * width, width, to.begin() + to_row * width);
}

template <typename T>
void append_row(const std::vector<T>& from, int64_t row, int64_t width, std::vector<T>& to) {
  if (!from.empty())
    to.insert(to.end(), from.begin() + row * width, from.begin() + (row + 1) * width);
}

/// The sequences of the plan's items. They are in no pass any more.
std::vector<Item> sequences_of(const Plan& plan, std::list<ActiveSequence>& active) {
  std::vector<Item> items;
  // Most items come in the order of the sequences, so each is looked for after the one before it.
  auto at = active.begin();
  for (const PlanItem& item : plan.items) {
    const auto is_of_item = [&](const ActiveSequence& sequence) {
      return sequence.id == item.rows.sequence;
    };
    auto found = std::find_if(at, active.end(), is_of_item);
    if (found == active.end()) found = std::find_if(active.begin(), at, is_of_item);
    PECIA_CHECK(found != active.end() && is_of_item(*found), "sequence {} is not running",
                item.rows.sequence);
    found->in_pass = 0;
    items.push_back(found);
    at = std::next(found);
  }
  return items;
}

/// Stores the prompts' log-probabilities: in each item's own prompt, and for its last row in the
/// turns that follow.
void take_targets(SchedulerState& state, const Plan& plan, const std::vector<Outcome>& outcomes,
                  const std::vector<Item>& items) {
  std::vector<std::pair<io::TurnResult*, int64_t>> destinations;
  std::map<int32_t, size_t> followers_seen;  // by item
  for (const Target& target : plan.targets) {
    ActiveSequence& sequence = *items[target.item];
    if (target.position + 1 < sequence.answer_begin) {
      destinations.emplace_back(&sequence.result, target.position + 1 - sequence.prompt_begin);
      continue;
    }
    const size_t turn = state.followers(sequence).at(followers_seen[target.item]++);
    destinations.emplace_back(&sequence.request().turns[turn].answer, 0);
  }
  const int64_t width = batch::top_width(state.limits.prompt_logprobs, state.limits.vocab);
  for (const Outcome& outcome : outcomes)
    for (size_t i = 0; i < outcome.targets.which.size(); ++i) {
      const auto& [result, index] = destinations[outcome.targets.which[i]];
      const auto row = static_cast<int64_t>(i);
      result->prompt_logprobs[index] = outcome.targets.logprobs[i];
      copy_row(outcome.targets.top_tokens, row, width, result->prompt_top_tokens, index);
      copy_row(outcome.targets.top_logprobs, row, width, result->prompt_top_logprobs, index);
    }
}

/// Stores the log-probabilities of sampled tokens. Returns the tokens, by item.
std::vector<std::optional<int32_t>> take_sampled(const SchedulerState& state,
                                                 const std::vector<Outcome>& outcomes,
                                                 const std::vector<Item>& items) {
  std::vector<std::optional<int32_t>> sampled(items.size());
  const int64_t width = batch::top_width(state.limits.logprobs, state.limits.vocab);
  for (const Outcome& outcome : outcomes)
    for (size_t i = 0; i < outcome.sampled.which.size(); ++i) {
      const int32_t item = outcome.sampled.which[i];
      const auto row = static_cast<int64_t>(i);
      io::TurnResult& result = items[item]->result;
      sampled[item] = outcome.sampled.tokens[i];
      result.token_logprobs.push_back(outcome.sampled.logprobs[i]);
      append_row(outcome.sampled.top_tokens, row, width, result.top_tokens);
      append_row(outcome.sampled.top_logprobs, row, width, result.top_logprobs);
    }
  return sampled;
}

bool stops(const SchedulerLimits& limits, const batch::Turn& turn, int32_t token) {
  const auto is_among = [&](const std::vector<int32_t>& tokens) {
    return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
  };
  return is_among(limits.stop_token_ids) && !(turn.ignore_eos && is_among(limits.eos_token_ids));
}

/// There is no next token, or the answer has not its shape. This ends a chain or a branch; the
/// branches of a prefix go on.
void fail_turn(SchedulerState& state, ActiveSequence& sequence, const std::string& why,
               double now) {
  auto& turns = sequence.request().turns;
  state.refuse(turns[sequence.turn], why);
  if (!sequence.is_prefix) {
    for (size_t later = sequence.turn + 1; later < sequence.end; ++later)
      state.refuse(turns[later], "an earlier turn of this request failed: " + why);
    sequence.turn = sequence.end;
  }
  sequence.begun = false;
  sequence.result = {};
  if (!sequence.is_branch()) sequence.origin->ready_s = now;
}

void finish_turn(SchedulerState& state, ActiveSequence& sequence, io::FinishReason reason,
                 double now) {
  batch::Turn& turn = sequence.current();
  sequence.begun = false;
  if (turn.row == batch::Turn::no_row) {  // the prefix of a group, whose requests wait since before
    ++state.sharing.prefixes;
    state.sharing.prefix_tokens += std::ssize(turn.tokens);
    turn.finished = true;
    sequence.result = {};
    return;
  }
  sequence.ready_s = now;
  if (!sequence.is_branch()) sequence.origin->ready_s = now;
  if (sequence.max_new_tokens > 0 && sequence.samples)
    state.lengths.add(turn, std::ssize(sequence.result.tokens), sequence.max_new_tokens);
  const bool unanswered = sequence.is_prefix && !sequence.samples && turn.max_new_tokens > 0;
  if (!turn.finished &&
      unanswered) {  // an earlier start began the answer; a branch goes on with it
    turn.answer = std::move(sequence.result);
  } else if (!turn.finished) {
    sequence.result.finish_reason = reason;
    turn.finished = true;
    state.any_done = sequence.origin->progressed = true;
    state.finished.push_back({turn.row, io::TurnState::done, std::move(sequence.result)});
  }
  sequence.result = {};
  sequence.answer_s.reset(), sequence.token_s.reset();
  if (sequence.is_prefix) return;
  ++sequence.turn;
  if (state.limits.on_demand) state.end_answer(sequence);
}

void answered(SchedulerState& state, ActiveSequence& sequence, int32_t token, double now) {
  io::TurnResult& result = sequence.result;
  if (result.tokens.empty()) result.ttft_s = static_cast<float>(now - sequence.ttft_begin_s);
  if (!sequence.answer_s) sequence.answer_s = now;
  sequence.token_s = now;
  result.decode_s = static_cast<float>(sequence.earlier_decode_s + now - *sequence.answer_s);
  result.tokens.push_back(token);
  sequence.unfed = {token};
  // The text of a stop token is not part of the answer.
  const bool stopped = stops(state.limits, sequence.current(), token);
  if (!stopped && sequence.stop_strings)
    result.text_bytes = sequence.stop_strings->read(token).value_or(-1);
  const bool full = std::ssize(result.tokens) >= sequence.max_new_tokens;
  if (sequence.shape) {
    const bool fits = sequence.shape->accept(token);
    const bool ends = stopped || result.text_bytes >= 0 || full;
    if (!fits || (ends && !sequence.shape->is_complete()))
      return fail_turn(
          state, sequence,
          fmt::format("after {} tokens the answer {}", result.tokens.size(),
                      !fits ? "cannot go on in its shape with this model's tokens"
                      : result.text_bytes >= 0
                          ? "ended at a stop text, before its shape was complete"
                          : "was as long as it may be, and its shape was not complete; raise "
                            "max_new_tokens, then --retry-failed"),
          now);
  }
  if (stopped || result.text_bytes >= 0) {
    finish_turn(state, sequence, io::FinishReason::stop, now);
  } else if (full) {
    finish_turn(state, sequence, io::FinishReason::length, now);
  } else if (sequence.is_prefix) {  // the answer goes on in a branch
    sequence.current().answer = std::move(result);
    sequence.begun = false;
    sequence.origin->prefix_answered_s = sequence.origin->ready_s = now;
  }
}

/// Says after which part of the model the item's logits held NaN or infinity.
std::string text_of_broken(const std::vector<Outcome>& outcomes, size_t item, size_t tokens) {
  std::string where = "the last FFN or the head";
  for (const Outcome& outcome : outcomes)
    for (const Broken& broken : outcome.broken)
      if (broken.item == static_cast<int32_t>(item)) where = broken.where;
  return fmt::format(
      "the logits after {} tokens of the answer hold NaN or infinity, which came from {}: try "
      "kv.dtype fp32 or model.dtype fp32 in another output folder",
      tokens, where);
}

/// Counts the pass's time in the results of its turns, and the seconds that keys took to compute.
void count_seconds(const Plan& plan, const std::vector<Outcome>& outcomes,
                   const std::vector<Item>& items) {
  double compute_s = 0, comm_s = 0;
  for (const Outcome& outcome : outcomes) {
    compute_s += outcome.compute_s / static_cast<double>(outcomes.size());
    comm_s += outcome.comm_s / static_cast<double>(outcomes.size());
  }
  int64_t rows = 0;
  for (const PlanItem& item : plan.items) rows += item.rows.count;
  const double row_s = (compute_s + comm_s) / static_cast<double>(rows);
  for (size_t i = 0; i < items.size(); ++i) {
    ActiveSequence& sequence = *items[i];
    io::TurnResult& result = sequence.result;
    const bool feeds = sequence.feeding();
    (feeds ? result.prefill_compute_s : result.decode_compute_s) += static_cast<float>(compute_s);
    (feeds ? result.prefill_comm_s : result.decode_comm_s) += static_cast<float>(comm_s);
    if (!sequence.is_branch())
      sequence.origin->computed_s += row_s * static_cast<double>(plan.items[i].rows.count);
  }
}

/// The sequence's prompt has been read. Its instances leave the batch in which that was, but for those
/// that keep some of what is still read, so that its answer waits for nothing.
void leave_batch(SchedulerState& state, ActiveSequence& sequence) {
  const int64_t batch = std::exchange(sequence.batch, -1);
  sequence.readers.clear();
  if (batch < 0 || !state.limits.parts.interrupts) return;
  std::set<int32_t> leaving(sequence.instances.begin(), sequence.instances.end());
  for (const ActiveSequence& other : state.active)
    if (other.batch == batch)
      for (const int32_t instance : other.instances) leaving.erase(instance);
  for (ActiveSequence& other : state.active)
    if (other.batch == batch)
      std::erase_if(other.readers, [&](int32_t reader) { return leaving.contains(reader); });
}

}  // namespace

void commit(SchedulerState& state, const Plan& plan, const std::vector<Outcome>& outcomes,
            double now) {
  const std::vector<Item> items = sequences_of(plan, state.active);
  const bool restored = !plan.restore.empty() && outcomes.front().kv.done != 0;
  const PassUnderWay& pass = state.under_way.at(plan.number);
  if (plan.moves_keys())
    state.times.add_parking(pass.moved_tokens, outcomes);
  else
    state.times.add(plan, restored, now - pass.begin_s);
  state.under_way.erase(plan.number);
  for (const parallel::Team& team : plan.teams)
    for (const int32_t instance : team.instances) state.doing[instance] = Doing::nothing;
  take_targets(state, plan, outcomes, items);
  const auto sampled = take_sampled(state, outcomes, items);
  count_seconds(plan, outcomes, items);
  const bool unread = !plan.restore.empty() &&
                      std::ranges::any_of(outcomes, [](const auto& of) { return of.kv.done == 0; });
  for (size_t i = 0; i < plan.items.size(); ++i) {
    ActiveSequence& sequence = *items[i];
    if (unread) {  // its tokens are computed
      sequence.restore_end = 0;
      sequence.request().saved = {};
    }
    if (sequence.again) {
      const bool whole = state.has_read_again(sequence, plan.items[i].rows.count);
      if (whole && std::exchange(sequence.origin->prefix_again, false))
        state.active.erase(items[i]);
      continue;
    }
    if (sequence.feeding()) sequence.fed += plan.items[i].rows.count;
    if (sequence.feeding()) continue;
    leave_batch(state, sequence);
    if (sequence.copy >= 0) state.go_on_as_copy(sequence);
    PECIA_CHECK(sampled[i].has_value() == (plan.items[i].sampled_index >= 0),
                "sequence {} was {}sampled", sequence.id, sampled[i] ? "" : "not ");
    if (sampled[i] == kernels::no_token) {
      fail_turn(state, sequence, text_of_broken(outcomes, i, sequence.result.tokens.size()), now);
    } else if (sampled[i]) {
      answered(state, sequence, *sampled[i], now);
    } else {
      finish_turn(state, sequence, io::FinishReason::length, now);
    }
    const bool last = sequence.is_prefix || sequence.turn == sequence.end;
    if (!sequence.begun && last) state.end(items[i]);
  }
}

}  // namespace pecia::schedule
