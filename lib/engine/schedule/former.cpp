// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/former.hpp"

#include <algorithm>
#include <utility>

#include "lib/base/core/error.hpp"
#include "lib/engine/schedule/ring_former.hpp"
#include "lib/engine/schedule/team_former.hpp"
#include "lib/engine/schedule/token_pace.hpp"

namespace pecia::schedule {
namespace {

bool is_in(const Plan& plan, int64_t sequence) {
  return std::ranges::any_of(plan.items,
                             [&](const PlanItem& item) { return item.rows.sequence == sequence; });
}

/// Tokens that the prompt's next chunk takes with `room` in the pass; 0: none now. Chunks end at
/// multiples of `batch`, also after a chunk that was cut for lack of time. Where the pass itself is
/// `cut`, they end before that, too: after whole units, or anywhere if teams change. Where the layout
/// must not matter, the end of a fork's first turn has chunks of its own, as it has without sharing.
int64_t chunk_tokens(const SchedulerLimits& limits, const ActiveSequence& sequence, int64_t batch,
                     int64_t room, bool cut) {
  const auto& again = sequence.again;
  const int64_t fed = again ? again->done : sequence.fed;
  const int64_t stem_end = again ? again->present().stem_end : sequence.current().stem_end_tokens;
  const int64_t prefix_end = limits.layout_invariant ? stem_end : 0;
  const int64_t begin = fed < prefix_end ? 0 : prefix_end;
  const int64_t unread_end = fed + sequence.unread();
  const int64_t end = fed < prefix_end ? std::min(prefix_end, unread_end) : unread_end;
  const int64_t left = end - fed, unit = limits.chunk_unit();
  if (limits.cuts_in_units()) return left <= room ? left : std::max<int64_t>(0, room / unit * unit);
  if (cut && limits.elastic) return std::min(left, room);
  const int64_t count = std::min(left, batch - (fed - begin) % batch);
  if (count <= room) return count;
  return cut ? std::max<int64_t>(0, room / unit * unit) : 0;
}

/// Notes the times at which the turn's first pass is planned.
void note_begin(ActiveSequence& sequence, double now) {
  if (sequence.fed > 0 || sequence.again) return;
  const RequestState& origin = *sequence.origin;
  // Where arrivals are replayed, all turns of a fork arrive together.
  const auto& arrival_s = origin.request.arrival_s;
  sequence.ttft_begin_s = !arrival_s ? now : origin.is_fork() ? *arrival_s : origin.ready_s;
  if (sequence.result.tokens.empty())
    sequence.result.queue_s = static_cast<float>(now - sequence.ready_s.value_or(origin.ready_s));
}

/// Asks for the log-probabilities of tokens of continuations whose predecessor is in the chunk: of the
/// one that the turn reads, or else the first of each.
void add_continuations(const ActiveSequence& sequence, const parallel::PassSequence& chunk,
                       Plan& plan) {
  const batch::Turn& turn = sequence.current();
  if (sequence.again || turn.finished || !io::scores(turn.produce)) return;
  const auto item = static_cast<int32_t>(plan.items.size());
  const int64_t end = chunk.first + chunk.count;
  const auto add = [&](int32_t continuation, int64_t index, int64_t position,
                       const batch::Turn& of) {
    plan.targets.push_back({item, of.continuations[continuation][index], position, continuation,
                            static_cast<int32_t>(index)});
  };
  if (turn.continuation >= 0) {
    const batch::Turn& owner = batch::owner_of(sequence.request(), turn);
    for (int64_t position = std::max(chunk.first, sequence.prompt_begin);
         position < std::min(end, sequence.answer_begin); ++position)
      add(turn.continuation, position - sequence.prompt_begin + 1, position, owner);
  } else if (end == sequence.answer_begin) {
    for (size_t i = 0; i < turn.continuations.size(); ++i)
      add(static_cast<int32_t>(i), 0, end - 1, turn);
  }
}

/// Asks for the sums of hidden states of the chunk's rows that vectors of the turn are means of.
void add_pools(const ActiveSequence& sequence, const parallel::PassSequence& chunk, Plan& plan) {
  const batch::Turn& turn = sequence.current();
  if (sequence.again || turn.finished) return;
  const int64_t begin = sequence.answer_begin - prompt_tokens(turn);
  for (size_t i = 0; i < turn.spans.size(); ++i) {
    const Pool pool{static_cast<int32_t>(plan.items.size()), static_cast<int32_t>(i),
                    std::max(chunk.first, begin + turn.spans[i].begin),
                    std::min(chunk.first + chunk.count, begin + turn.spans[i].end)};
    if (pool.begin < pool.end) plan.pools.push_back(pool);
  }
}

/// Asks for the log-probabilities of prompt tokens whose predecessor is in the chunk: the turn's own
/// tokens, then the first tokens of the turns that follow.
void add_targets(const SchedulerState& state, const ActiveSequence& sequence,
                 const parallel::PassSequence& chunk, Plan& plan) {
  if (sequence.again) return;
  const batch::Turn& turn = sequence.current();
  const auto item = static_cast<int32_t>(plan.items.size());
  const int64_t end = chunk.first + chunk.count;
  const auto& own = turn.tokens;
  if (!sequence.continues_prefix() && state.weighs_tokens(turn))
    for (int64_t position = std::max(chunk.first, sequence.prompt_begin - 1);
         position < std::min(end, sequence.answer_begin - 1); ++position)
      plan.targets.push_back({item, own[position + 1 - sequence.prompt_begin], position});
  if (end == sequence.answer_begin)
    for (const size_t next : state.followers(sequence))
      plan.targets.push_back({item, sequence.request().turns[next].tokens.front(), end - 1});
}

}  // namespace

int64_t Former::tokens_of_chunk(const SchedulerLimits& limits, const ActiveSequence& sequence,
                                int64_t batch) {
  return chunk_tokens(limits, sequence, batch, limits.batch_tokens(), false);
}

void Former::read(Pass& pass, const Selection& prompts, const Reading& reading) {
  const SchedulerLimits& limits = pass.state.limits;
  parallel::RingLoad riders;
  for (const PlanItem& item : pass.plan.items) riders.add(item.rows.count, item.rows.first);
  const size_t num_riders = pass.plan.items.size();
  int64_t room = reading.most - count_rows(pass.plan);
  std::optional<TokenPace> pace;
  if (limits.tbt_s) pace.emplace(pass.state, pass.plan, pass.now, pass.busy_until);
  for (ActiveSequence* const prompt : prompts) {
    ActiveSequence& sequence = *prompt;
    const int64_t left = sequence.unread();
    int64_t count = chunk_tokens(limits, sequence, reading.batch, room, reading.cut);
    // Where results must be the same in any batch, a prompt is always cut at the same tokens.
    const int64_t unit = limits.layout_invariant ? count : limits.chunk_unit();
    const int64_t cached = pass.state.map.length(sequence.id);
    count = pass.budget.rows(pass.plan, cached, count, unit);
    if (pace) count = pace->rows(cached, count, unit, count == left && sequence.samples);
    // Under chunked, feeding a shorter prompt that fits would add a decode row and delay this one.
    if (count == 0 && limits.policy == job::Policy::chunked) break;
    const bool first = pass.plan.items.size() == num_riders;
    if (count == 0 || (reading.whole && !first && count < left)) continue;
    const bool by_levels = limits.levels_from && count >= *limits.levels_from;
    PlanItem chunk =
        chunk_of(pass.state, sequence, count,
                 by_levels ? parallel::PassSequence::contiguous : parallel::PassSequence::balanced);
    const Exchange exchange = by_levels ? Exchange{parallel::AttentionExchange::levels}
                                        : exchange_of(pass.state, chunk.rows, riders);
    if (!first && exchange.ring != pass.team().ring) continue;
    pass.team().ring = exchange.ring;
    if (exchange.decision) chunk_rings_.push_back({sequence.id, *exchange.decision});
    room -= count;
    const bool ends = count == left && sequence.samples && !sequence.again;
    if (pace) pace->add(cached, count, ends);
    if (ends) chunk.sampled_index = std::ssize(sequence.result.tokens);
    place(pass, sequence, chunk, count == left);
    note_begin(sequence, pass.now);
    add_targets(pass.state, sequence, chunk.rows, pass.plan);
    add_continuations(sequence, chunk.rows, pass.plan);
    add_pools(sequence, chunk.rows, pass.plan);
    add(pass, sequence, std::move(chunk));
  }
}

PlanItem Former::chunk_of(const SchedulerState& state, const ActiveSequence& sequence,
                          int64_t count, int32_t owner) const {
  PlanItem item;
  item.rows = {sequence.id, state.map.length(sequence.id), count, owner, virtual_ranks_};
  const auto& again = sequence.again;
  const std::span<const int32_t> tokens =
      again ? std::span<const int32_t>(again->tokens).subspan(again->run_begin + again->done)
            : sequence.feed.subspan(sequence.fed);
  item.tokens.assign(tokens.begin(), tokens.begin() + count);
  item.prompt_end = again ? again->present().prompt_end : sequence.answer_begin;
  item.longest = sequence.origin->longest;
  return item;
}

PlanItem Former::token_of(const SchedulerState& state, const ActiveSequence& sequence,
                          int32_t owner, int64_t most) const {
  if (sequence.again) return chunk_of(state, sequence, 1, owner);
  PECIA_CHECK(std::ssize(sequence.unfed) == sequence.replays + 1,
              "sequence {} has {} tokens to decode, {} of them again", sequence.id,
              sequence.unfed.size(), sequence.replays);
  const int64_t count = std::min(most, sequence.replays + (sequence.begun ? 1 : 0));
  PlanItem item;
  item.rows = {sequence.id, state.map.length(sequence.id), count, owner, virtual_ranks_};
  item.tokens.assign(sequence.unfed.begin(), sequence.unfed.begin() + count);
  item.prompt_end = sequence.answer_begin;
  item.longest = sequence.origin->longest;
  if (count > sequence.replays) item.sampled_index = std::ssize(sequence.result.tokens);
  return item;
}

void Former::restore(Pass& pass, ActiveSequence& sequence, int64_t count, int32_t owner) {
  pass.team().sharding = pass.state.limits.modes.sharding(count, true);
  pass.plan.restore = sequence.request().saved.folder;
  note_begin(sequence, pass.now);
  add(pass, sequence, chunk_of(pass.state, sequence, count, owner));
}

void Former::add(Pass& pass, ActiveSequence& sequence, PlanItem item) {
  if (!sequence.feeding()) {
    sequence.has_waited = false;
    if (!sequence.again) sequence.decoded += item.rows.count;
  }
  pass.state.cache(sequence, item, pass.team());
  pass.plan.items.push_back(std::move(item));
}

void Former::set_sharding(Pass& pass, bool prefills) {
  int64_t new_tokens = 0;
  for (const PlanItem& item : pass.plan.items) new_tokens += item.rows.count;
  const parallel::PassModes& modes = pass.state.limits.modes;
  pass.team().sharding = modes.sharding(new_tokens, prefills);
  if (pass.team().sharding != parallel::Sharding::sp_tp || !modes.gather_threshold) return;
  for (ActiveSequence& sequence : pass.state.active)
    if (sequence.feeding() && sequence.fed == 0 && is_in(pass.plan, sequence.id))
      sequence.result.mode = name_of(parallel::PrefillMode::sp_tp);
}

std::unique_ptr<Former> make_former(const SchedulerLimits& limits) {
  if (limits.elastic) return std::make_unique<TeamFormer>(limits);
  return std::make_unique<RingFormer>(limits);
}

}  // namespace pecia::schedule
