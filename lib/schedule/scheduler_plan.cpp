// SPDX-License-Identifier: Apache-2.0
/// Makes the next pass.

#include <algorithm>
#include <tuple>
#include <utility>

#include "lib/parallel/virtual_ranks.hpp"
#include "lib/schedule/scheduler_parts.hpp"

namespace pecia::schedule {

using parallel::Ring;

std::optional<Plan> Scheduler::next(double now) {
  if (out_of_time_) return {};
  while (const auto sequence = time_.too_slow(state_, now)) state_.give_back(*sequence);
  if (limited())  // passes measured since may show that they fit after all
    std::erase_if(state_.late, [&](const auto& late) {
      if (!time_.in_time_alone(state_, late->request, now)) return false;
      state_.waiting.push_back(late);
      return true;
    });
  begin_turns(now);
  if (state_.active.empty()) {
    given_up_ = given_up_ || !state_.forks.empty();
    return {};
  }
  chunk_rings_.clear();
  budget_ = time_.of_pass(state_, now);
  if (state_.limits.elastic) return next_of_a_team(now);
  Plan plan;
  plan.number = state_.next_pass;
  plan.teams = {parallel::team_of_all(state_.limits.ring_size)};
  if (!restore(plan, now) && !compute(plan, now)) {
    out_of_time_ = true;
    return {};
  }
  News news = std::exchange(state_.news, {});
  plan.added = std::move(news.added);
  plan.turns = std::move(news.turns);
  plan.removed = std::move(news.removed);
  state_.under_way[state_.next_pass++] = now;
  return plan;
}

/// Begins requests and turns. A turn that is refused when it begins makes room for others.
void Scheduler::begin_turns(double now) {
  bool made_room = false;
  do {
    made_room = false;
    begin_requests(now);
    for (auto running = state_.active.begin(); running != state_.active.end();) {
      const auto current = running++;
      const bool in_time = current->begun || time_.turn_in_time(state_, *current, now);
      given_up_ = given_up_ || !in_time;
      if (!current->begun && in_time) state_.start_turn(*current);
      if (current->begun) continue;
      state_.end(current);
      made_room = true;
    }
  } while (made_room);
}

/// Plans the rows of a pass of all instances; false: none would end in time.
bool Scheduler::compute(Plan& plan, double now) {
  if (state_.limits.policy == job::Policy::chunked || budget_.answers_first) decode(plan);
  const bool answers_first =
      !plan.items.empty() && state_.limits.policy == job::Policy::prefill_first;
  const size_t num_riders = plan.items.size();
  if (!answers_first) feed(plan, now, order_.prompts(state_));
  const bool prefills = plan.items.size() > num_riders;
  if (plan.items.empty()) decode(plan);
  if (plan.items.empty()) return false;
  set_sharding(plan, prefills);
  return true;
}

void Scheduler::set_sharding(Plan& plan, bool prefills) const {
  int64_t new_tokens = 0;
  for (const PlanItem& item : plan.items) new_tokens += item.rows.count;
  plan.teams.front().sharding = state_.limits.modes.sharding(new_tokens, prefills);
}

/// How many times max_batch_tokens a team's pass may have.
int64_t Scheduler::batches_of(const parallel::Team& team) const {
  return state_.limits.elastic ? team.workers() : 1;
}

/// Tokens that the prompt's next chunk takes with `room` in the batch; 0: none now. Chunks end at
/// multiples of max_batch_tokens, also after a chunk that was cut for lack of time. Where the pass
/// itself is `cut`, because it is to end early, they end anywhere. Where the layout must not matter,
/// the end of a fork's first turn has chunks of its own, as it has without sharing.
int64_t Scheduler::chunk_tokens(const ActiveSequence& running, const parallel::Team& team,
                                int64_t room, bool cut) const {
  const int64_t stem_end = state_.limits.layout_invariant ? running.current().stem_end_tokens : 0;
  const int64_t begin = running.fed < stem_end ? 0 : stem_end;
  const int64_t end = running.fed < stem_end ? stem_end : std::ssize(running.feed);
  const int64_t left = end - running.fed;
  const int64_t batch = state_.limits.max_batch_tokens * batches_of(team);
  if (state_.limits.policy == job::Policy::chunked)
    return left <= room ? left
                        : std::max<int64_t>(
                              0, room / state_.limits.chunk_unit() * state_.limits.chunk_unit());
  if (cut) return std::min(left, room);
  const int64_t most = batch - (running.fed - begin) % batch;
  const int64_t count = std::min(left, most);
  return count <= room ? count : 0;
}

/// Decides what travels for the chunk, unless the ring is fixed.
///
/// It uses rule B, not A: our pass-Q sends outputs home in fp32, twice the bytes of a bf16 cache,
/// and nothing hides that all-to-all. `riders`, the decode rows of the pass, count too: with
/// pass-KV the keys of their sequences would travel as well.
std::optional<parallel::RingDecision> Scheduler::ring_by_rule(const parallel::PassSequence& chunk,
                                                              parallel::RingLoad riders) const {
  if (state_.limits.ring || state_.limits.ring_size == 1 || state_.limits.elastic) return {};
  riders.add(chunk.count, chunk.first);
  return parallel::rule_b(
      {riders, state_.limits.ring_size, state_.limits.ring_shape, state_.limits.ring_rates});
}

/// When the turn was asked, if arrivals are replayed. All turns of a fork arrive together.
std::optional<double> Scheduler::asked(const ActiveSequence& running) {
  const RequestState& family = *running.origin;
  if (!family.request.arrival_s) return {};
  return family.is_fork() ? *family.request.arrival_s : family.ready_s;
}

/// Notes the times at which the turn's first pass is planned.
void Scheduler::note_begin(ActiveSequence& running, double now) const {
  if (running.fed > 0) return;
  running.ttft_begin_s = asked(running).value_or(now);
  if (running.result.tokens.empty())
    running.result.queue_s =
        static_cast<float>(now - running.ready_s.value_or(running.origin->ready_s));
}

/// Plans prefill: the next chunk of each of these sequences in turn, as long as the chunks fit the
/// batch and want the same tensor to travel as the first. The first chunk always fits, unless the
/// pass has decode rows; these end, so no prompt waits for ever.
void Scheduler::feed(Plan& plan, double now, const Selection& prompts) {
  parallel::Team& team = plan.teams.front();
  parallel::RingLoad riders;
  for (const PlanItem& item : plan.items) riders.add(item.rows.count, item.rows.first);
  const size_t num_riders = plan.items.size();
  const bool keys_travel = state_.limits.ring_size == 1 || state_.limits.elastic;
  const Ring fixed = keys_travel ? Ring::pass_kv : state_.limits.ring.value_or(Ring::pass_kv);
  const int64_t batch = state_.limits.batch_tokens() * batches_of(team);
  const int64_t most = prompts.empty() ? batch : most_tokens(team, *prompts.front(), now);
  const bool cut = waits_least() || most < batch;
  int64_t room = most - static_cast<int64_t>(num_riders);
  for (ActiveSequence* const prompt : prompts) {
    ActiveSequence& running = *prompt;
    const int64_t left = static_cast<int64_t>(running.feed.size()) - running.fed;
    int64_t count = chunk_tokens(running, team, room, cut);
    // Where results must be the same in any batch, a prompt is always cut at the same tokens.
    const int64_t unit = state_.limits.layout_invariant ? count : state_.limits.chunk_unit();
    count = budget_.rows(plan, state_.map.length(running.id), count, unit);
    // Under chunked, feeding a shorter prompt that fits would add a decode row and delay this one.
    if (count == 0 && state_.limits.policy == job::Policy::chunked) break;
    // The end of a shorter prompt does not wait for a part of another one.
    const bool first = plan.items.size() == num_riders;
    if (count == 0 || (waits_least() && !first && count < left)) continue;
    PlanItem item;
    item.rows = {running.id, state_.map.length(running.id), count, parallel::PassSequence::balanced,
                 virtual_ranks_of_rows()};
    const bool by_levels = state_.limits.levels_from && count >= *state_.limits.levels_from;
    if (by_levels) item.rows.owner = parallel::PassSequence::contiguous;
    const auto decision = by_levels ? std::nullopt : ring_by_rule(item.rows, riders);
    const Ring ring = by_levels ? Ring::levels : decision ? decision->ring : fixed;
    if (!first && ring != team.ring) continue;
    team.ring = ring;
    if (state_.limits.elastic)
      running.result.mode = fmt::format("elastic:{}", team.workers());
    else if (state_.limits.ring_size > 1 || state_.limits.levels_from)
      running.result.mode = name_of(ring);
    if (decision) chunk_rings_.push_back({running.id, *decision});
    room -= count;
    item.tokens.assign(running.feed.begin() + running.fed,
                       running.feed.begin() + running.fed + count);
    item.prompt_end = running.answer_begin;
    item.longest = running.origin->longest;
    if (count == left && running.samples)
      item.sampled_index = static_cast<int64_t>(running.result.tokens.size());
    if (state_.limits.elastic) {
      const bool spreads = spread(running, team);
      if (count == left && !spreads) gather(running, item, team);
      introduce(plan, running);
      if (item.kept.empty()) keep_by_room(item, team);
    }
    note_begin(running, now);
    add_targets(plan, running, static_cast<int32_t>(plan.items.size()), item.rows.first,
                item.rows.first + count);
    state_.cache(running, item, team);
    if (item.gathers != 0) running.instances = state_.instances_of(running.id);
    plan.items.push_back(std::move(item));
  }
}

/// Chooses the rank that computes a sequence's next token. It is a rank with the fewest rows of
/// this pass, and among these one with the fewest tokens of the sequence. Equal ranks take turns,
/// moving on by one with every step (Context Parallelism …, §3.6), so that no rank's memory fills
/// up first. For virtual ranks the choice follows from the position, so the batch does not affect
/// it.
int32_t Scheduler::deal(ActiveSequence& running, std::vector<int64_t>& rows, int64_t step) const {
  if (state_.limits.layout_invariant)
    return parallel::generated_owner(state_.map.length(running.id), running.deal_shift);
  // A sequence's share of each rank's memory is fixed at admission, so a full rank is skipped.
  const auto cost = [&](int32_t rank) {
    return std::tuple(running.dealt[rank] == running.deal_limit, rows[rank], running.dealt[rank]);
  };
  auto owner = static_cast<int32_t>(step % state_.limits.ring_size);
  for (int next = 1; next < state_.limits.ring_size; ++next) {
    const auto rank = static_cast<int32_t>((step + next) % state_.limits.ring_size);
    if (cost(rank) < cost(owner)) owner = rank;
  }
  ++running.dealt[owner];
  ++rows[owner];
  return owner;
}

/// Plans one token of every prefilled sequence; none when time is too short.
void Scheduler::decode(Plan& plan) {
  if (!budget_.decodes) return;
  parallel::Team& team = plan.teams.front();
  team.ring = state_.limits.ring_size > 1 ? state_.limits.modes.decode_ring : Ring::pass_kv;
  std::vector<int64_t> rows(state_.limits.ring_size);
  for (ActiveSequence& running : state_.active) {
    if (running.feeding()) continue;
    PECIA_CHECK(running.unfed.size() == 1, "sequence {} has {} tokens to decode", running.id,
                running.unfed.size());
    PlanItem item;
    item.rows = {running.id, state_.map.length(running.id), 1, deal(running, rows, plan.number),
                 virtual_ranks_of_rows()};
    item.tokens = running.unfed;
    item.prompt_end = running.answer_begin;
    item.longest = running.origin->longest;
    item.sampled_index = static_cast<int64_t>(running.result.tokens.size());
    state_.cache(running, item, team);
    plan.items.push_back(std::move(item));
  }
}

/// Adds targets for prompt tokens whose predecessor has a position in [begin, end): the turn's own
/// tokens up to position answer_begin − 2, then the first tokens of the turns that follow.
void Scheduler::add_targets(Plan& plan, const ActiveSequence& running, int32_t item, int64_t begin,
                            int64_t end) {
  if (state_.limits.prompt_logprobs == 0) return;
  const auto& own = running.current().tokens;
  if (!(running.is_branch() && running.turn == 0))
    for (int64_t position = std::max(begin, running.prompt_begin - 1);
         position < std::min(end, running.answer_begin - 1); ++position)
      plan.targets.push_back({item, own[position + 1 - running.prompt_begin], position});
  if (end == running.answer_begin)
    for (const size_t turn : state_.followers(running))
      plan.targets.push_back({item, running.origin->request.turns[turn].tokens.front(), end - 1});
}

}  // namespace pecia::schedule
