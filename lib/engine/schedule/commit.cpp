// SPDX-License-Identifier: Apache-2.0
/// Takes in the outcomes of a finished pass.

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "lib/base/core/error.hpp"
#include "lib/engine/schedule/instruction.hpp"
#include "lib/engine/schedule/scheduler_state.hpp"

namespace pecia::schedule {
namespace {

constexpr float largest_fp16 = 65504;

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

/// The sequences of the plan's items. They are not in this pass any more.
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
    found->in_pass -= item.rows.count;
    items.push_back(found);
    at = std::next(found);
  }
  return items;
}

/// Where a target's log-probability goes.
struct Destination {
  io::TurnResult* result;
  int64_t index;   ///< of the token, in the prompt or among those that the scores weigh
  bool of_prompt;  ///< stored where the job wants log-probabilities of prompts
  bool of_score;   ///< the scores of the result weigh it
};

/// In each item's own prompt, for its last row in the turns that follow; and in what turns with
/// continuations weigh.
std::vector<Destination> destinations_of(const SchedulerState& state, const Plan& plan,
                                         const std::vector<Item>& items) {
  std::vector<Destination> destinations;
  std::map<int32_t, size_t> followers_seen;  // by item
  for (const Target& target : plan.targets) {
    ActiveSequence& sequence = *items[target.item];
    batch::Turn& turn = sequence.current();
    if (target.continuation != Target::of_prompt) {
      batch::Turn& owner = batch::owner_of(sequence.request(), turn);
      io::TurnResult& result = &owner == &turn ? sequence.result : owner.answer;
      destinations.push_back(
          {&result, score_begin(owner, target.continuation) + target.index, false, true});
    } else if (target.position + 1 < sequence.answer_begin) {
      destinations.push_back({&sequence.result, target.position + 1 - sequence.prompt_begin, true,
                              weighs_itself(turn)});
    } else {
      const size_t next = state.followers(sequence).at(followers_seen[target.item]++);
      batch::Turn& follower = sequence.request().turns[next];
      destinations.push_back({&follower.answer, 0, true, weighs_itself(follower)});
    }
  }
  return destinations;
}

/// Says after which part of the model the item's outputs first held NaN or infinity.
std::string source_of_broken(const std::vector<Outcome>& outcomes, int32_t item) {
  const Broken* first = nullptr;
  for (const Outcome& outcome : outcomes)
    for (const Broken& broken : outcome.broken)
      if (broken.item == item && (first == nullptr || broken.order < first->order)) first = &broken;
  return first == nullptr ? "the last FFN or the head" : first->where;
}

void note_fault(const std::vector<Outcome>& outcomes, int32_t item, const char* what,
                ActiveSequence& sequence) {
  if (!sequence.fault.empty()) return;
  sequence.fault = fmt::format(
      "{} hold NaN or infinity, which came from {}: try kv.dtype fp32 or model.dtype fp32 in "
      "another output folder",
      what, source_of_broken(outcomes, item));
}

/// Stores log-probabilities of prompts and of continuations.
void take_targets(SchedulerState& state, const Plan& plan, const std::vector<Outcome>& outcomes,
                  const std::vector<Item>& items) {
  const std::vector<Destination> destinations = destinations_of(state, plan, items);
  const bool of_prompts = state.limits.prompt_logprobs != 0;
  const int64_t width = batch::top_width(state.limits.prompt_logprobs, state.limits.vocab);
  for (const Outcome& outcome : outcomes)
    for (size_t i = 0; i < outcome.targets.which.size(); ++i) {
      const int32_t target = outcome.targets.which[i];
      const auto& [result, index, of_prompt, of_score] = destinations[target];
      const auto row = static_cast<int64_t>(i);
      const float logprob = outcome.targets.logprobs[i];
      if (of_score) result->score_logprobs[index] = logprob;
      if (of_score && std::isnan(logprob)) {
        const int32_t item = plan.targets[target].item;
        note_fault(outcomes, item, "log-probabilities that the score weighs", *items[item]);
      }
      if (!of_prompt || !of_prompts) continue;
      result->prompt_logprobs[index] = logprob;
      copy_row(outcome.targets.top_tokens, row, width, result->prompt_top_tokens, index);
      copy_row(outcome.targets.top_logprobs, row, width, result->prompt_top_logprobs, index);
    }
}

/// Adds up what the ranks have of the vectors' sums.
void take_pooled(const Plan& plan, const std::vector<Outcome>& outcomes,
                 const std::vector<Item>& items) {
  for (const Outcome& outcome : outcomes)
    for (const PooledSum& of : outcome.pooled) {
      const Pool& pool = plan.pools.at(of.pool);
      ActiveSequence& sequence = *items[pool.item];
      sequence.pooled.at(pool.vector).add(of.sum);
      if (of.sum.broken()) note_fault(outcomes, pool.item, "hidden states of the prompt", sequence);
    }
}

/// A sampled token, as a rank has it.
struct Sampled {
  const LogProbs* of = nullptr;
  int64_t row = 0;

  int32_t token() const { return of->tokens[row]; }
};

/// The tokens that were sampled for each item.
std::vector<std::vector<Sampled>> sampled_of(const Plan& plan,
                                             const std::vector<Outcome>& outcomes) {
  const std::vector<Sample> samples = plan.samples();
  std::vector<std::vector<Sampled>> sampled;
  for (const PlanItem& item : plan.items) sampled.emplace_back(item.samples());
  for (const Outcome& outcome : outcomes)
    for (size_t i = 0; i < outcome.sampled.which.size(); ++i) {
      const auto [item, ahead] = samples.at(outcome.sampled.which[i]);
      sampled[item][ahead] = {&outcome.sampled, static_cast<int64_t>(i)};
    }
  return sampled;
}

void store_logprobs(const SchedulerState& state, const Sampled& sampled, io::TurnResult& result) {
  const int64_t width = batch::top_width(state.limits.logprobs, state.limits.vocab);
  result.token_logprobs.push_back(sampled.of->logprobs[sampled.row]);
  append_row(sampled.of->top_tokens, sampled.row, width, result.top_tokens);
  append_row(sampled.of->top_logprobs, sampled.row, width, result.top_logprobs);
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
  batch::Request& request = sequence.request();
  auto& turns = request.turns;
  state.refuse(request, turns[sequence.turn], why);
  if (!sequence.is_prefix) {
    for (size_t later = sequence.turn + 1; later < sequence.end; ++later)
      state.refuse(request, turns[later], "an earlier turn of this request failed: " + why);
    sequence.turn = sequence.end;
  }
  if (sequence.is_prefix)  // continuations go nowhere without their prompt
    for (batch::Turn& turn : turns)
      if (turn.continuation >= 0) state.refuse(request, turn, why);
  sequence.begun = false;
  sequence.result = {};
  if (!sequence.is_branch()) sequence.origin->ready_s = now;
}

/// Makes the turn's vectors from their sums. Returns why that cannot be; "": it could.
std::string make_vectors(const SchedulerLimits& limits, ActiveSequence& sequence) {
  const batch::Turn& turn = sequence.current();
  for (size_t i = 0; i < turn.spans.size(); ++i) {
    const HiddenSum& sum = sequence.pooled.at(i);
    const io::TokenSpan& span = turn.spans[i];
    if (sum.broken()) return "a sum of hidden states is too large: use vector.pool: last";
    PECIA_CHECK(sum.count() == span.end - span.begin, "a vector of {} tokens has {}",
                span.end - span.begin, sum.count());
    for (const float value : sum.mean(limits.vector_scale, limits.normalizes_vectors)) {
      if (limits.vector_type == io::VectorType::fp16 && std::abs(value) > largest_fp16)
        return fmt::format(
            "a number of the vector is {}, and fp16 holds {} at most: use "
            "vector.dtype: fp32 or normalize: true in another output folder",
            value, largest_fp16);
      sequence.result.vectors.push_back(value);
    }
  }
  return {};
}

/// The last part of the turn's product has been computed: notes it. Returns why it failed, as
/// make_vectors does.
std::string make_product(const SchedulerState& state, ActiveSequence& sequence, double now) {
  const batch::Turn& turn = sequence.current();
  if (turn.produce == io::Produce::text || turn.finished) return {};
  if (!sequence.fault.empty()) return sequence.fault;
  sequence.result.ttft_s = static_cast<float>(now - sequence.ttft_begin_s);
  if (turn.produce == io::Produce::vector) return make_vectors(state.limits, sequence);
  if (!weighs_itself(turn)) return {};
  const std::span<const float> logprobs(sequence.result.score_logprobs);
  const auto weighed = logprobs.subspan(sequence.prompt_begin == 0 ? 1 : 0);
  if (std::ranges::any_of(weighed, [](float of) { return std::isnan(of); }))
    return "log-probabilities that the score weighs hold NaN: try model.dtype fp32";
  return {};
}

/// A turn that gives vectors or scores has been read. Scores wait until all continuations are.
void finish_product(SchedulerState& state, ActiveSequence& sequence) {
  batch::Turn& turn = sequence.current();
  batch::Request& request = sequence.request();
  batch::Turn& owner = batch::owner_of(request, turn);
  turn.finished = true;
  if (!owner.refused.empty()) return;  // another continuation has failed
  io::TurnResult& result = owner.answer;
  if (&owner == &turn) {
    result = std::move(sequence.result);
  } else {
    result.ttft_s = std::max(result.ttft_s, sequence.result.ttft_s);
    result.prefill_compute_s += sequence.result.prefill_compute_s;
    result.prefill_comm_s += sequence.result.prefill_comm_s;
  }
  const auto is_open = [&](const batch::Turn& of) { return of.row == turn.row && !of.finished; };
  if (std::ranges::any_of(request.turns, is_open)) return;
  if (io::scores(turn.produce)) result.scores = scores_of(owner, result.score_logprobs);
  result.finish_reason = io::FinishReason::stop;
  state.any_done = sequence.origin->progressed = true;
  state.finished.push_back({owner.row, io::TurnState::done, std::move(result)});
}

/// The turn's answer is complete, or its prompt has been read and that was all.
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
  if (state.limits.drafts.on() && sequence.samples)
    state.drafter.add_answer(turn, sequence.result.tokens);
  const bool unanswered = sequence.is_prefix && !sequence.samples && turn.max_new_tokens > 0;
  if (!turn.finished &&
      unanswered) {  // an earlier start began the answer; a branch goes on with it
    turn.answer = std::move(sequence.result);
  } else if (!turn.finished && turn.produce != io::Produce::text) {
    finish_product(state, sequence);
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

/// How an answer ends.
struct Ending {
  io::FinishReason reason = io::FinishReason::stop;
  std::string failure = {};  ///< why the turn failed; "": it did not
};

/// The answer has this token next. Returns how it ends; absent: it goes on.
std::optional<Ending> answered(const SchedulerState& state, ActiveSequence& sequence, int32_t token,
                               double now) {
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
      return Ending{
          io::FinishReason::failed,
          fmt::format("after {} tokens the answer {}", result.tokens.size(),
                      !fits ? "cannot go on in its shape with this model's tokens"
                      : result.text_bytes >= 0
                          ? "ended at a stop text, before its shape was complete"
                          : "was as long as it may be, and its shape was not complete; raise "
                            "max_new_tokens, then --retry-failed")};
  }
  if (stopped || result.text_bytes >= 0) return Ending{io::FinishReason::stop};
  if (full) return Ending{io::FinishReason::length};
  return {};
}

std::string text_of_broken(const std::vector<Outcome>& outcomes, size_t item, size_t tokens) {
  return fmt::format(
      "the logits after {} tokens of the answer hold NaN or infinity, which came from {}: try "
      "kv.dtype fp32 or model.dtype fp32 in another output folder",
      tokens, source_of_broken(outcomes, static_cast<int32_t>(item)));
}

/// The tokens that an answer gets in a pass.
struct Answered {
  int64_t tokens = 0;
  std::optional<Ending> ending = {};
};

/// Takes in what was sampled for item `i`: a token and, as long as they are those that were drafted, the
/// next ones. Drops the other drafted tokens.
Answered take_sampled(SchedulerState& state, const Plan& plan, size_t i,
                      std::span<const Sampled> sampled, const std::vector<Outcome>& outcomes,
                      ActiveSequence& sequence, double now) {
  const PlanItem& item = plan.items[i];
  state.draft_counts.again += std::exchange(sequence.replays, 0);
  Answered answer;
  for (bool goes_on = true; goes_on;) {
    const Sampled& next = sampled[answer.tokens];
    PECIA_CHECK(next.of != nullptr, "token {} of sequence {} was not sampled",
                item.sampled_index + answer.tokens, sequence.id);
    if (next.token() == kernels::no_token) {
      answer.ending = {io::FinishReason::failed,
                       text_of_broken(outcomes, i, sequence.result.tokens.size())};
      break;
    }
    store_logprobs(state, next, sequence.result);
    answer.ending = answered(state, sequence, next.token(), now);
    const int64_t drafted = item.first_sampled() + ++answer.tokens - item.rows.first;
    goes_on = !answer.ending && answer.tokens < std::ssize(sampled) &&
              item.tokens[drafted] == next.token();
  }
  if (item.drafted == 0) return answer;
  const int64_t accepted = std::max<int64_t>(0, answer.tokens - 1);
  sequence.result.draft_accepted += static_cast<int32_t>(accepted);
  const batch::Turn& turn = sequence.current();
  state.draft_counts.add({item.drafted, accepted}, sequence.draft_match,
                         instruction_of(turn.tokens), turn.row);
  state.drafter.add_outcome(sequence, item.drafted, accepted);
  state.drop_drafted(sequence, item, item.drafted - accepted);
  return answer;
}

/// Counts the seconds that drafts have saved in a pass that took `seconds` and gave the answers `tokens`:
/// those that passes without drafts would have taken for them, less these.
void count_saved(SchedulerState& state, const Plan& plan, int64_t tokens, double seconds) {
  if (std::ranges::none_of(plan.items, [](const PlanItem& item) { return item.drafted > 0; }))
    return;
  const auto without_s = state.times.seconds_without_drafts(plan);
  if (!without_s) return;
  const double passes = static_cast<double>(tokens) / static_cast<double>(plan.items.size());
  ++state.draft_counts.priced;
  state.draft_counts.saved_s += passes * *without_s - seconds;
}

/// Goes on with the sequence's turn, or ends it.
void conclude(SchedulerState& state, ActiveSequence& sequence, const std::optional<Ending>& ending,
              double now) {
  if (ending && !ending->failure.empty()) return fail_turn(state, sequence, ending->failure, now);
  if (ending) return finish_turn(state, sequence, ending->reason, now);
  if (!sequence.is_prefix) return;
  sequence.current().answer = std::move(sequence.result);  // the answer goes on in a branch
  sequence.begun = false;
  sequence.origin->prefix_answered_s = sequence.origin->ready_s = now;
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
    const bool feeds = plan.items[i].rows.is_shared();
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

std::vector<int64_t> commit(SchedulerState& state, const Plan& plan,
                            const std::vector<Outcome>& outcomes, double now) {
  const std::vector<Item> items = sequences_of(plan, state.active);
  const bool restored = !plan.restore.empty() && outcomes.front().kv.done != 0;
  const PassUnderWay& pass = state.under_way.at(plan.number);
  // Where plans overlap, a pass takes as long as the stages need until the next one ends.
  const double seconds =
      now - (state.limits.overlaps()
                 ? std::max(pass.begin_s, std::exchange(state.last_commit_s, now))
                 : pass.begin_s);
  if (pass.moved_tokens > 0) state.times.add_parking(pass.moved_tokens, outcomes);
  if (!plan.moves_keys()) state.times.add(plan, restored, seconds);
  state.under_way.erase(plan.number);
  for (const parallel::Team& team : plan.teams)
    for (const int32_t instance : team.instances) state.doing[instance] = Doing::nothing;
  take_targets(state, plan, outcomes, items);
  take_pooled(plan, outcomes, items);
  const std::vector<std::vector<Sampled>> sampled = sampled_of(plan, outcomes);
  count_seconds(plan, outcomes, items);
  const bool unread = !plan.restore.empty() &&
                      std::ranges::any_of(outcomes, [](const auto& of) { return of.kv.done == 0; });
  std::vector<int64_t> given(plan.items.size());
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
    if (sequence.feeding() && !state.limits.overlaps()) sequence.fed += plan.items[i].rows.count;
    if (sequence.feeding() || sequence.in_pass > 0) continue;  // the prompt goes on
    if (sequence.replays > 0 && sampled[i].empty()) {
      state.has_replayed(sequence, plan.items[i].rows.count);
      state.draft_counts.again += plan.items[i].rows.count;
      continue;
    }
    leave_batch(state, sequence);
    if (sequence.copy >= 0) state.go_on_as_copy(sequence);
    if (!sampled[i].empty()) {
      const Answered answer = take_sampled(state, plan, i, sampled[i], outcomes, sequence, now);
      given[i] = answer.tokens;
      conclude(state, sequence, answer.ending, now);
    } else if (const std::string why = make_product(state, sequence, now); !why.empty()) {
      fail_turn(state, sequence, why, now);
    } else {
      finish_turn(state, sequence, io::FinishReason::length, now);
    }
    const bool last = sequence.is_prefix || sequence.turn == sequence.end;
    if (!sequence.begun && last) state.end(items[i]);
  }
  count_saved(state, plan, std::accumulate(given.begin(), given.end(), int64_t{0}), seconds);
  return given;
}

}  // namespace pecia::schedule
