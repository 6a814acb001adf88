// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/team_former.hpp"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "lib/base/core/error.hpp"
#include "lib/engine/schedule/elastic_degree.hpp"
#include "lib/engine/schedule/team_slots.hpp"
#include "lib/engine/schedule/token_pace.hpp"

namespace pecia::schedule {
namespace {

using parallel::AttentionExchange;

/// The instance that computes the sequence's next token and keeps it: one with room, and among these
/// the one with the fewest rows so far, and then with the most room. `rows` are those of the masters
/// so far. When these are `most`, another one is taken only if none of them has room. A sequence with
/// a state stays where that is as long as there is room, also for what it computes again.
int32_t master_of(const SchedulerState& state, const ActiveSequence& sequence,
                  const std::map<int32_t, int64_t>& rows, size_t most) {
  std::optional<int32_t> chosen;
  std::tuple<bool, int64_t, int64_t> least;
  for (int instance = 0; instance < state.limits.ring_size; ++instance) {
    const int64_t room = room_on(state, sequence, instance);
    if (room == 0) continue;
    const bool has_state =
        state.limits.has_states && instance == state.map.state_holder(sequence.id);
    if (has_state && room > sequence.replays) return instance;
    const auto found = rows.find(instance);
    const bool new_one = found == rows.end();
    const std::tuple cost(new_one && rows.size() >= most, new_one ? int64_t{0} : found->second,
                          -room);
    if (!chosen || cost < least) chosen = instance, least = cost;
  }
  PECIA_CHECK(chosen, "no instance has room for the next token of sequence {}", sequence.id);
  return *chosen;
}

/// Whether the prompt can be read in the same pass as `first`.
bool reads_with(const ActiveSequence& prompt, const ActiveSequence& first) {
  if (prompt.fed < prompt.restore_end || prompt.batch != first.batch) return false;
  return first.readers.empty() ? prompt.readers.empty() && prompt.instances == first.instances
                               : prompt.readers == first.readers;
}

/// Whether the sequence could have its next token now: it has a slot, and its keys stay.
bool makes_token(const ActiveSequence& sequence) {
  return sequence.can_decode() && sequence.has_room() && sequence.leaves < 0;
}

/// Sequences that could have their next token on instances that are not `blocked`.
Selection ready_to_decode(SchedulerState& state, const std::vector<bool>& blocked) {
  Selection ready;
  for (ActiveSequence& sequence : state.active)
    if (makes_token(sequence) && std::ranges::none_of(sequence.instances, [&](int32_t instance) {
          return blocked[instance];
        }))
      ready.push_back(&sequence);
  return ready;
}

/// Keeps the first sequence and those that are connected with it: each shares an instance with
/// another. Returns their instances.
std::set<int32_t> keep_connected(Selection& ready) {
  std::set<int32_t> team(ready.front()->instances.begin(), ready.front()->instances.end());
  const auto meets = [&](const ActiveSequence* sequence) {
    return std::ranges::any_of(sequence->instances,
                               [&](int32_t instance) { return team.contains(instance); });
  };
  for (size_t before = 0; before < team.size();) {
    before = team.size();
    for (const ActiveSequence* sequence : ready)
      if (meets(sequence)) team.insert(sequence->instances.begin(), sequence->instances.end());
  }
  std::erase_if(ready, [&](const ActiveSequence* sequence) { return !meets(sequence); });
  return team;
}

}  // namespace

TeamFormer::TeamFormer(const SchedulerLimits& limits)
    : Former(0), told_(limits.ring_size), busy_until_(limits.ring_size) {}

std::optional<Plan> TeamFormer::form(SchedulerState& state, const Selection& prompts,
                                     const PassBudget& budget, double now) {
  decisions_.clear();
  left_.assign(state.limits.ring_size, 0);
  // Instances hear of sequences when they join a team.
  const News news = std::exchange(state.news, {});
  for (const int64_t ended : news.removed) told_.forget(ended);
  for (const auto& [shortened, length] : news.shortened) told_.shorten(shortened);
  for (const int64_t parked : news.parked) told_.park(state, parked);
  for (const ActiveSequence& sequence : state.active)
    if (sequence.changed) told_.leave(sequence);
  if (std::ranges::count(state.doing, Doing::nothing) == 0) return {};
  Pass pass{state, budget, now, {}, busy_until_};
  pass.plan.number = state.next_pass;
  pass.plan.teams.emplace_back();
  const auto answers = state.limits.waits_least()
                           ? answers_by_instance(state)
                           : std::vector<InstanceAnswers>(state.limits.ring_size);
  Selection readable = prompts;
  if (state.limits.parts.interrupts) let_answers_first(state, answers, now, readable, decisions_);
  const bool may_grow = state.limits.parts.grows && readable.empty() && state.waiting.empty();
  if (budget.decodes) let_waiting_first(state, readable);
  std::set<int32_t> called;
  if (!restore_next(pass) && !move_keys(pass, called) &&
      !read_first(pass, readable, answers, called) &&
      !make_tokens(pass, readable, called, may_grow))
    return {};
  told_.tell_what_left(state, pass.plan);
  const ToldSequences::Moved moved = told_.take_moved(pass.team());
  state.demand.parked_tokens += moved.parked;
  state.demand.returned_tokens += moved.returned;
  state.moving_tokens = moved.on_busiest;
  if (state.times.teams) {
    const double until = now + expected_seconds(pass.plan, *state.times.teams);
    for (const int32_t instance : pass.team().instances) busy_until_[instance] = until;
  }
  return std::move(pass.plan);
}

/// Plans a pass that reads the next chunk of a sequence with saved keys and values, all of it on
/// the instance where the sequence has most room.
bool TeamFormer::restore_next(Pass& pass) {
  SchedulerState& state = pass.state;
  const auto found = std::ranges::find_if(state.active, [&](const ActiveSequence& sequence) {
    return sequence.fed < sequence.restore_end && sequence.in_pass == 0 &&
           state.all_idle(sequence.instances);
  });
  if (found == state.active.end()) return false;
  parallel::Team& team = pass.team();
  team = {found->instances, 0, AttentionExchange::pass_kv, {}};
  const int32_t keeper = master_of(state, *found, {}, 1);
  const int64_t room = room_on(state, *found, keeper);
  told_.introduce(state, *found, pass.plan);
  restore(pass, *found,
          std::min({found->restore_end - found->fed, state.limits.batch_tokens(), room}),
          team.size() == 1 ? parallel::PassSequence::balanced
                           : static_cast<int32_t>(team.index_of(keeper).value()));
  for (const int32_t instance : team.instances) state.doing[instance] = Doing::prompts;
  return true;
}

/// Plans a pass in which keys leave an instance: the next token of all sequences that hold some
/// there. All their keys go round the ring of their instances, and the others of these keep what
/// that instance had. Until that can begin, the instances are `called` to take part in nothing else.
/// Source: LoongServe (decode groups that shrink).
bool TeamFormer::move_keys(Pass& pass, std::set<int32_t>& called) {
  SchedulerState& state = pass.state;
  std::map<int32_t, Selection> leaving;
  for (ActiveSequence& sequence : state.active)
    if (sequence.leaves >= 0) leaving[sequence.leaves].push_back(&sequence);
  for (const auto& [left, sequences] : leaving) {
    std::set<int32_t> team;
    for (const ActiveSequence* sequence : sequences)
      team.insert(sequence->instances.begin(), sequence->instances.end());
    const bool ready = pass.budget.decodes && state.all_idle({team.begin(), team.end()}) &&
                       std::ranges::all_of(sequences, &ActiveSequence::can_decode);
    if (!ready) {
      called.insert(team.begin(), team.end());
      continue;
    }
    pass.team() = {{team.begin(), team.end()}, 0, AttentionExchange::pass_kv, {}};
    for (ActiveSequence* sequence : sequences) {
      Slots room(state.limits.ring_size);
      for (const int32_t instance : sequence->instances)
        if (instance != left) room[instance] = room_on(state, *sequence, instance);
      const auto keeper = static_cast<int32_t>(std::ranges::max_element(room) - room.begin());
      told_.introduce(state, *sequence, pass.plan);
      PlanItem item =
          token_of(state, *sequence, static_cast<int32_t>(pass.team().index_of(keeper).value()));
      const Slots shares =
          shares_by_free_slots(state.map.held(sequence->id, left) + item.rows.count, room);
      for (const int32_t instance : sequence->instances)
        if (instance != left) item.kept.push_back({instance, shares[instance]});
      item.gathers = 1;
      add(pass, *sequence, std::move(item));
      sequence->leaves = -1, sequence->changed = true;
    }
    for (const int32_t instance : team) state.doing[instance] = Doing::answers;
    set_sharding(pass, false);
    return true;
  }
  return false;
}

/// Plans prefill of the first prompt whose readers are all idle, with others that have the same
/// instances. A prompt that comes before it keeps its instances from reading another one first, and
/// those that are `called` to help from making further tokens.
bool TeamFormer::read_first(Pass& pass, const Selection& prompts,
                            const std::vector<InstanceAnswers>& answers,
                            std::set<int32_t>& called) {
  SchedulerState& state = pass.state;
  const SchedulerLimits& limits = state.limits;
  std::set<int32_t> wanted = instances_of_waiting(state);  // and by prompts that must wait
  for (const ActiveSequence* const first : prompts) {
    const std::vector<int32_t>& instances = first->instances;
    const bool free = std::ranges::none_of(
        instances, [&](int32_t instance) { return wanted.contains(instance); });
    if (!free || (first->readers.empty() && !state.all_idle(instances))) {
      wanted.insert(instances.begin(), instances.end());
      continue;
    }
    const std::vector<int32_t> readers = readers_of(state, *first, answers, wanted, decisions_);
    const bool waits_for_keys = std::ranges::any_of(
        first->readers, [&](int32_t instance) { return called.contains(instance); });
    if (waits_for_keys || !state.all_idle(readers)) {
      wanted.insert(readers.begin(), readers.end());
      called.insert(readers.begin(), readers.end());
      continue;
    }
    pass.team() = {readers, 0, AttentionExchange::pass_kv, {}};
    if (limits.policy == job::Policy::chunked) ride(pass, readers);
    const size_t num_riders = pass.plan.items.size();
    Selection together;
    std::ranges::copy_if(prompts, std::back_inserter(together),
                         [&](const ActiveSequence* other) { return reads_with(*other, *first); });
    const int64_t workers = pass.team().workers(), batch = limits.batch_tokens() * workers;
    const bool is_dealt = !first->readers.empty();
    const int64_t most =
        together.empty() || is_dealt
            ? batch
            : most_tokens(state, pass.team(), *together.front(), busy_until_, pass.now);
    // Where requests wait least, the end of a shorter prompt does not wait for a part of another.
    read(pass, together,
         {.batch = limits.max_batch_tokens * workers,
          .most = most,
          .cut = (limits.waits_least() && !is_dealt) || most < batch,
          .whole = limits.waits_least() && !is_dealt});
    if (pass.plan.items.empty()) continue;  // there is no time for it
    const bool reads = pass.plan.items.size() > num_riders;
    send_keys(pass, together);
    if (reads) let_wait(state, pass.team());
    for (const int32_t instance : readers)
      state.doing[instance] = reads ? Doing::prompts : Doing::answers;
    set_sharding(pass, reads);
    return true;
  }
  return false;
}

void TeamFormer::place(Pass& pass, ActiveSequence& sequence, PlanItem& chunk, bool last) {
  SchedulerState& state = pass.state;
  const bool apart = sequence.copy >= 0;
  sequence.result.mode = fmt::format("{}:{}", apart ? "apart" : "elastic", pass.team().workers());
  const Slots free = without(state.free_slots(), left_);
  const bool spreads =
      !apart && sequence.readers.empty() && spread(state, sequence, pass.team(), free, decisions_);
  if (last && !apart && !spreads && state.limits.parts.scales_down)
    gather(state, sequence, chunk, pass.team(), free, decisions_);
  if (chunk.gathers != 0)
    for (const int32_t instance : sequence.instances)
      if (instance != chunk.kept.front().instance)
        left_[instance] += state.map.reserved(sequence.id, instance);
  told_.introduce(state, sequence, pass.plan);
  if (chunk.kept.empty()) keep_by_room(state, chunk, pass.team());
}

/// Sends the keys of the pass's prompts on to the instances that will answer them.
void TeamFormer::send_keys(Pass& pass, const Selection& prompts) {
  parallel::KvMap& map = pass.state.map;
  for (const PlanItem& chunk : pass.plan.items) {
    const auto found = std::ranges::find(prompts, chunk.rows.sequence, &ActiveSequence::id);
    if (found == prompts.end() || (*found)->copy < 0) continue;
    const int64_t copy = (*found)->copy;
    std::vector<int32_t> places;
    Slots room;
    for (int instance = 0; instance < map.instances(); ++instance)
      if (map.reserved(copy, instance) > 0) {
        places.push_back(instance);
        room.push_back(map.reserved(copy, instance) - map.held(copy, instance));
      }
    const Slots tokens = shares_by_free_slots(chunk.rows.count, room);
    std::vector<parallel::KeptShare> shares;
    for (size_t i = 0; i < places.size(); ++i) shares.push_back({places[i], tokens[i]});
    Receiving& receiving = pass.plan.receiving;
    told_.introduce_copy(pass.state, copy, places, receiving);
    const bool ends = (*found)->fed + chunk.rows.count == std::ssize((*found)->feed);
    for (parallel::KeyCopy& part :
         parallel::key_copies(map, chunk.rows.sequence, copy, chunk.rows.first, shares,
                              pass.state.limits.has_states && ends)) {
      map.append(part.rows(), part.team());
      receiving.copies.push_back(std::move(part));
    }
  }
}

/// Lets all sequences that decode on these instances alone ride in the pass.
void TeamFormer::ride(Pass& pass, const std::vector<int32_t>& instances) {
  SchedulerState& state = pass.state;
  Selection riders;
  for (ActiveSequence& sequence : state.active)
    if (makes_token(sequence) && std::ranges::includes(instances, sequence.instances))
      riders.push_back(&sequence);
  const PassDrafts drafts =
      draft_for_team(state, riders, static_cast<int>(instances.size()),
                     state.limits.batch_tokens() / 2 - std::ssize(riders) - count_replays(riders));
  std::map<int32_t, int64_t> rows;
  for (ActiveSequence* const sequence : riders) {
    const int32_t master = master_of(state, *sequence, rows, instances.size());
    const std::vector<int32_t> drafted = drafted_on(state, drafts, *sequence, master);
    rows[master] += sequence->replays + 1 + std::ssize(drafted);
    add_token(pass, *sequence, master, drafted);
  }
}

/// Plans the sequence's next token, what it computes again before that and what is drafted after it, on
/// an instance of the plan's team. Where there are not slots for all, it computes again what has some.
void TeamFormer::add_token(Pass& pass, ActiveSequence& sequence, int32_t master,
                           const std::vector<int32_t>& drafted) {
  told_.introduce(pass.state, sequence, pass.plan);
  PlanItem item =
      token_of(pass.state, sequence, static_cast<int32_t>(pass.team().index_of(master).value()),
               room_on(pass.state, sequence, master));
  add_draft(drafted, item);
  add(pass, sequence, std::move(item));
}

/// Plans one token of a connected set of sequences, and what is drafted after it. Instances that a
/// waiting prompt needs are left out, unless one of its others reads a prompt now: they meet as soon as
/// the steps under way have ended.
bool TeamFormer::make_tokens(Pass& pass, const Selection& prompts, const std::set<int32_t>& called,
                             bool may_grow) {
  if (!pass.budget.decodes) return false;
  SchedulerState& state = pass.state;
  std::vector<bool> blocked(state.limits.ring_size);
  for (int instance = 0; instance < state.limits.ring_size; ++instance)
    blocked[instance] = state.doing[instance] != Doing::nothing || called.contains(instance);
  for (const ActiveSequence* const prompt : prompts) {
    const std::vector<int32_t>& needed = prompt->needed();
    const bool reads = prompt->readers.empty() && std::ranges::any_of(needed, [&](int32_t of) {
                         return state.doing[of] == Doing::prompts;
                       });
    for (const int32_t instance : needed) blocked[instance] = blocked[instance] || !reads;
  }
  Selection ready = ready_to_decode(state, blocked);
  if (ready.empty()) return false;
  std::set<int32_t> team = keep_connected(ready);
  const PassDrafts drafts =
      draft_for_team(state, ready, static_cast<int>(team.size()),
                     state.limits.batch_tokens() - std::ssize(ready) - count_replays(ready));
  if (may_grow) scale_ups_ += grow(state, ready, drafts, team, decisions_);
  const size_t most = most_masters(state, ready, drafts, team.size());
  struct Dealt {
    ActiveSequence* sequence;
    int32_t master;
    std::vector<int32_t> drafted;
  };
  std::map<int32_t, int64_t> rows;  // by master
  std::vector<Dealt> dealt;
  for (ActiveSequence* sequence : ready) {
    const int32_t master = master_of(state, *sequence, rows, most);
    dealt.push_back({sequence, master, drafted_on(state, drafts, *sequence, master)});
    rows[master] += sequence->replays + 1 + std::ssize(dealt.back().drafted);
  }
  const AttentionExchange sent = team.size() == 1
                                     ? AttentionExchange::pass_kv
                                     : AttentionExchange::broadcast_q;  // alone nothing is sent
  pass.team() = {{}, static_cast<int32_t>(team.size() - rows.size()), sent, {}};
  for (const auto& [master, count] : rows) pass.team().instances.push_back(master);
  for (const int32_t instance : team)
    if (!rows.contains(instance)) pass.team().instances.push_back(instance);
  for (const auto& [sequence, master, drafted] : dealt) add_token(pass, *sequence, master, drafted);
  for (const int32_t instance : team) state.doing[instance] = Doing::answers;
  set_sharding(pass, false);
  return true;
}

/// How many instances of a team of this size are to compute the sequences' next tokens.
size_t TeamFormer::most_masters(const SchedulerState& state, const Selection& ready,
                                const PassDrafts& drafts, size_t degree) {
  if (degree == 1 || !state.times.teams) return degree;
  const auto [rows, pairs] = rows_with(state, drafts, ready);
  const Masters chosen =
      masters(*state.times.teams, static_cast<int>(degree), rows, pairs, std::ssize(ready));
  decisions_.push_back({"elastic_masters",
                        {{"instances", static_cast<double>(degree)},
                         {"rows", static_cast<double>(rows)},
                         {"masters", chosen.count},
                         {"seconds", chosen.seconds},
                         {"one_s", chosen.one_s},
                         {"most_s", chosen.most_s}},
                        chosen.count > 1 ? "several" : "one"});
  return static_cast<size_t>(chosen.count);
}

}  // namespace pecia::schedule
