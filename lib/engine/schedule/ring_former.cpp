// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/ring_former.hpp"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "lib/engine/schedule/pass_drafts.hpp"
#include "lib/engine/schedule/pipeline.hpp"
#include "lib/engine/schedule/team_readers.hpp"
#include "lib/engine/schedule/token_pace.hpp"
#include "lib/ranks/parallel/virtual_ranks.hpp"

namespace pecia::schedule {
namespace {

using parallel::AttentionExchange;

/// The first of the ranks with room for the sequence that compute the answers of fewest sequences.
int32_t least_taken(const SchedulerState& state, const ActiveSequence& sequence) {
  std::vector<std::pair<bool, int64_t>> cost;  // by rank: whether it is full; sequences
  for (const int64_t dealt : sequence.dealt) cost.emplace_back(dealt == sequence.deal_limit, 0);
  for (const ActiveSequence& of : state.active)
    if (of.home >= 0) ++cost[of.home].second;
  return static_cast<int32_t>(std::ranges::min_element(cost) - cost.begin());
}

/// Chooses the rank that computes a sequence's next token. Where the sequence has a state, one rank
/// computes them until its share is full, and then another, so that the state seldom travels. Else it
/// is a rank with the fewest `rows` of this pass, and among these one with the fewest tokens of the
/// sequence. Equal ranks take turns, moving on by one with every step (Context Parallelism …, §3.6),
/// so that no rank's memory fills up first. For virtual ranks the choice follows from the position,
/// so the batch does not affect it.
int32_t deal(const SchedulerState& state, const ActiveSequence& sequence,
             const std::vector<int64_t>& rows, int64_t step) {
  if (state.limits.has_states && !state.limits.layout_invariant) {
    // What a turn that has ended computes again has its slots where it was.
    const bool stays = sequence.home >= 0 && (sequence.ends_turn_again() ||
                                              sequence.dealt[sequence.home] != sequence.deal_limit);
    return stays ? sequence.home : least_taken(state, sequence);
  }
  if (state.limits.layout_invariant)
    return parallel::generated_owner(
        state.map.length(sequence.id),
        sequence.again ? sequence.again->present().deal_shift : sequence.deal_shift);
  // A sequence's share of each rank's memory is fixed at admission, so a full rank is skipped.
  const auto cost = [&](int32_t rank) {
    return std::tuple(sequence.dealt[rank] == sequence.deal_limit, rows[rank],
                      sequence.dealt[rank]);
  };
  const int ranks = state.limits.ring_size;
  auto owner = static_cast<int32_t>(step % ranks);
  for (int next = 1; next < ranks; ++next) {
    const auto rank = static_cast<int32_t>((step + next) % ranks);
    if (cost(rank) < cost(owner)) owner = rank;
  }
  return owner;
}

/// Slots for further tokens of the sequence's answer on their owner.
int64_t slots_of_answer(const SchedulerState& state, const ActiveSequence& sequence,
                        int32_t owner) {
  if (state.limits.layout_invariant || sequence.ends_turn_again())
    return std::numeric_limits<int64_t>::max();
  return sequence.deal_limit - sequence.dealt[owner];
}

/// Tokens that may be drafted after the item, which has the next token of the sequence's answer: that
/// have slots beside it on its rank.
int64_t most_drafted(const SchedulerState& state, const ActiveSequence& sequence,
                     const PlanItem& item) {
  if (item.samples() == 0) return 0;
  const int64_t slots =
      std::min(sequence.room - sequence.decoded, slots_of_answer(state, sequence, item.rows.owner));
  return slots - item.rows.count;
}

/// Drafts of these answers. By price there are none where passes without drafts were not measured.
PassDrafts drafts_of(SchedulerState& state, const Selection& decoding, int64_t spare) {
  if (!state.limits.drafts.on()) return {};
  std::vector<Draftable> answers;
  for (ActiveSequence* const sequence : decoding)
    answers.push_back({sequence, most_after_next(*sequence)});
  if (!state.limits.drafts.by_price) return draft_for_pass(state, answers, spare, {});
  const RowTimes& times = *state.times.answer_passes;
  if (!times.knows(static_cast<double>(answers.size()))) return {};
  return draft_for_pass(state, answers, spare,
                        [&](const PassWork& work) { return times.seconds(work); });
}

}  // namespace

RingFormer::RingFormer(const SchedulerLimits& limits)
    : Former(limits.layout_invariant ? parallel::layout_ranks : 0) {}

std::optional<Plan> RingFormer::form(SchedulerState& state, const Selection& prompts,
                                     const PassBudget& budget, double now) {
  chunk_rings_.clear(), decisions_.clear();
  Pass pass{state, budget, now, {}};
  pass.plan.number = state.next_pass;
  pass.plan.teams = {parallel::team_of_all(state.limits.ring_size)};
  if (!restore_next(pass) && !compute(pass, prompts)) return {};
  if (state.limits.overlaps()) note_planned(pass);
  News news = std::exchange(state.news, {});
  pass.plan.added = std::move(news.added);
  pass.plan.turns = std::move(news.turns);
  pass.plan.removed = std::move(news.removed);
  pass.plan.parked = std::move(news.parked);
  pass.plan.returned = std::move(news.returned);
  pass.plan.grown = std::move(news.grown);
  pass.plan.shortened = std::move(news.shortened);
  return std::move(pass.plan);
}

/// The pass's chunks of prompts count as read, so that the next pass goes on after them.
void RingFormer::note_planned(Pass& pass) {
  for (const PlanItem& item : pass.plan.items) {
    if (!item.rows.is_shared()) continue;
    ActiveSequence& sequence =
        *std::ranges::find(pass.state.active, item.rows.sequence, &ActiveSequence::id);
    if (!sequence.again) sequence.fed += item.rows.count;
  }
}

/// Plans a pass that reads the next chunk of the first sequence with saved keys and values.
bool RingFormer::restore_next(Pass& pass) {
  auto& active = pass.state.active;
  const auto found = std::ranges::find_if(
      active, [](const ActiveSequence& sequence) { return sequence.fed < sequence.restore_end; });
  if (found == active.end()) return false;
  const SchedulerLimits& limits = pass.state.limits;
  int64_t count = std::min(found->restore_end - found->fed, limits.restored_tokens());
  if (limits.has_states && limits.layout_invariant)
    count = std::min(count, tokens_of_chunk(limits, *found, limits.max_batch_tokens));
  if (limits.ring_size > 1) pass.team().ring = limits.ring.value_or(AttentionExchange::pass_kv);
  restore(pass, *found, count, parallel::PassSequence::balanced);
  return true;
}

Former::Reading RingFormer::reading(const Pass& pass, const Selection& prompts) const {
  const SchedulerLimits& limits = pass.state.limits;
  const int64_t batch = limits.max_batch_tokens, most = limits.batch_tokens();
  const bool in_chunks = limits.overlaps() && limits.cuts_in_units() && !prompts.empty() &&
                         limits.policy == job::Policy::prefill_first && !prompts.front()->again;
  if (in_chunks) {
    const ActiveSequence& first = *prompts.front();
    const bool alone = prompts.size() == 1 && pass.state.waiting.empty();
    const int64_t tokens =
        chunk_of_equal_work({.first = pass.state.map.length(first.id) - first.fed,
                             .count = std::ssize(first.feed),
                             .planned = first.fed},
                            chunk_rule(limits, alone));
    // Prompts that end in the pass leave room for others.
    const bool ends = tokens >= first.unread();
    return {batch, ends && !alone ? most : std::min(most, tokens + count_rows(pass.plan)), true};
  }
  const bool is_short = limits.waits_least() && !limits.layout_invariant && !limits.levels_from;
  if (!is_short || prompts.empty()) return {batch, most, false, limits.waits_least()};
  const int64_t tokens = short_pass_tokens(pass.state, limits.ring_size, *prompts.front());
  return {batch, std::min(most, tokens + count_rows(pass.plan)), true, true};
}

/// Plans rows to compute; false: none would end in time.
bool RingFormer::compute(Pass& pass, const Selection& all) {
  const SchedulerLimits& limits = pass.state.limits;
  const bool chunked = limits.policy == job::Policy::chunked;
  const bool answers_first = pass.budget.answers_first || !instances_of_waiting(pass.state).empty();
  if (chunked || answers_first) decode(pass);
  const size_t num_riders = pass.plan.items.size();
  Selection prompts = all;
  if (limits.waits_least())
    let_answers_first(pass.state, answers_by_instance(pass.state), pass.now, prompts, decisions_);
  if (chunked || num_riders == 0) read(pass, prompts, reading(pass, prompts));
  const bool prefills = pass.plan.items.size() > num_riders;
  if (prefills) let_wait(pass.state, pass.team());
  if (pass.plan.items.empty()) decode(pass);
  if (pass.plan.items.empty()) return false;
  set_sharding(pass, prefills);
  return true;
}

/// Plans one token of every prefilled sequence, and what is drafted after it; none when time is too
/// short.
void RingFormer::decode(Pass& pass) const {
  if (!pass.budget.decodes) return;
  SchedulerState& state = pass.state;
  const SchedulerLimits& limits = state.limits;
  pass.team().ring = limits.ring_size > 1 ? limits.modes.decode_ring : AttentionExchange::pass_kv;
  Selection decoding;
  for (ActiveSequence& sequence : state.active)
    if (sequence.can_decode() && sequence.has_room()) decoding.push_back(&sequence);
  if (limits.overlaps()) {
    if (std::ssize(state.under_way) >= limits.stages) return;  // one group for each stage
    const int64_t answers =
        std::ranges::count_if(state.active, [](const ActiveSequence& of) { return !of.feeding(); });
    const auto group = static_cast<size_t>(answers_of_group(answers, limits.stages));
    decoding.resize(std::min(decoding.size(), group));
  }
  std::vector<int64_t> rows(limits.ring_size);
  const bool chunked = limits.policy == job::Policy::chunked;
  // Rows that are computed again after drafts come to no more than the drafts.
  const int64_t spare =
      limits.batch_tokens() / (chunked ? 2 : 1) - std::ssize(decoding) - count_replays(decoding);
  const PassDrafts drafts = drafts_of(state, decoding, spare);
  for (ActiveSequence* const each : decoding) {
    ActiveSequence& sequence = *each;
    const int32_t owner = deal(state, sequence, rows, pass.plan.number);
    PlanItem item = token_of(state, sequence, owner, slots_of_answer(state, sequence, owner));
    add_draft(first_of(drafts, sequence, most_drafted(state, sequence, item)), item);
    if (limits.has_states && !limits.layout_invariant) sequence.home = owner;
    if (!limits.layout_invariant) {
      sequence.dealt[owner] += item.rows.count;
      rows[owner] += item.rows.count;
    }
    add(pass, sequence, std::move(item));
  }
}

/// Decides by rule B what travels for the chunk, or by a rule that was fitted to times of both ways,
/// unless that is fixed.
///
/// It is rule B, not A: our pass-Q sends outputs home in fp32, twice the bytes of a bf16 cache, and
/// nothing hides that all-to-all. `riders`, the decode rows of the pass, count too: with pass-KV the
/// keys of their sequences would travel as well.
Former::Exchange RingFormer::exchange_of(const SchedulerState& state,
                                         const parallel::PassSequence& chunk,
                                         parallel::RingLoad riders) const {
  const SchedulerLimits& limits = state.limits;
  if (limits.ring_size == 1) return {AttentionExchange::pass_kv};
  if (limits.ring) return {*limits.ring};
  riders.add(chunk.count, chunk.first);
  const parallel::RingInputs in{riders, limits.ring_size, limits.ring_shape, limits.ring_rates};
  const parallel::RingDecision decision =
      limits.fitted_rule ? decide_fitted(in, *limits.fitted_rule) : rule_b(in);
  return {decision.ring, decision};
}

void RingFormer::place(Pass& pass, ActiveSequence& sequence, PlanItem&, bool) {
  if (pass.state.limits.ring_size > 1 || pass.state.limits.levels_from)
    sequence.result.mode = name_of(pass.team().ring);
}

}  // namespace pecia::schedule
