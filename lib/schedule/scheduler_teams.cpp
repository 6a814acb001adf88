// SPDX-License-Identifier: Apache-2.0
/// Passes of teams that change. A sequence has the instances on which it has slots. It can take part
/// in a pass only if all of them do, so a pass's team is made of the instances of its sequences.
/// Source: LoongServe (elastic instances; multi-master distributed decoding).

#include <algorithm>
#include <iterator>
#include <ranges>
#include <set>

#include "lib/schedule/elastic_degree.hpp"
#include "lib/schedule/elastic_urgency.hpp"
#include "lib/schedule/scheduler_parts.hpp"

namespace pecia::schedule {

using parallel::Ring;

/// The next pass of instances that are in none; absent: nothing can begin now.
std::optional<Plan> Scheduler::next_of_a_team(double now) {
  decisions_.clear();
  const News news = std::exchange(state_.news, {});  // instances hear it when they join a team
  for (const int64_t ended : news.removed) forget(ended);
  if (std::ranges::count(state_.doing, Doing::nothing) == 0) return {};
  Plan plan;
  plan.number = state_.next_pass;
  plan.teams.emplace_back();
  const auto answers =
      waits_least() ? answers_by_instance() : std::vector<Answers>(state_.doing.size());
  const Selection prompts = prompts_to_read(answers, now);
  std::set<int32_t> called;  // instances that are to help to read a prompt next
  if (!restore_for_team(plan, now) && !read_prompts(plan, prompts, answers, called, now) &&
      !make_tokens(plan, prompts, called)) {
    out_of_time_ = state_.under_way.empty();
    PECIA_CHECK(limited() || !out_of_time_, "{} sequences run, and none can take part in a pass",
                running());
    return {};
  }
  std::set<int64_t, std::greater<>> ended;  // children come after their parents
  for (const int32_t instance : plan.teams.front().instances) {
    ended.insert(unheard_[instance].begin(), unheard_[instance].end());
    unheard_[instance].clear();
  }
  plan.removed.assign(ended.begin(), ended.end());
  state_.under_way[state_.next_pass++] = now;
  if (state_.times.teams) {
    const double until = now + schedule::expected_seconds(plan, *state_.times.teams);
    for (const int32_t instance : plan.teams.front().instances) busy_until_[instance] = until;
  }
  return plan;
}

bool Scheduler::all_idle(const std::vector<int32_t>& instances) const {
  return std::all_of(instances.begin(), instances.end(),
                     [&](int32_t instance) { return state_.doing[instance] == Doing::nothing; });
}

/// Plans a pass that reads the next chunk of a sequence with saved keys and values, all of it on
/// the instance where the sequence has most room.
bool Scheduler::restore_for_team(Plan& plan, double now) {
  const auto found =
      std::find_if(state_.active.begin(), state_.active.end(), [&](const ActiveSequence& running) {
        return running.fed < running.restore_end && running.in_pass == 0 &&
               all_idle(running.instances);
      });
  if (found == state_.active.end()) return false;
  ActiveSequence& running = *found;
  parallel::Team& team = plan.teams.front();
  team = {running.instances, 0, Ring::pass_kv, {}};
  const int32_t keeper = master_of(running, {}, 1);
  const int64_t room =
      state_.map.reserved(running.id, keeper) - state_.map.held(running.id, keeper);
  const int64_t count =
      std::min({running.restore_end - running.fed, state_.limits.batch_tokens(), room});
  PlanItem item;
  item.rows = {running.id, state_.map.length(running.id), count,
               team.size() == 1 ? parallel::PassSequence::balanced
                                : static_cast<int32_t>(team.index_of(keeper).value())};
  item.tokens.assign(running.feed.begin() + running.fed,
                     running.feed.begin() + running.fed + count);
  item.prompt_end = running.answer_begin;
  item.longest = running.origin->longest;
  team.sharding = state_.limits.modes.sharding(count, true);
  plan.restore = running.origin->request.saved.folder;
  note_begin(running, now);
  introduce(plan, running);
  state_.cache(running, item, team);
  plan.items.push_back(std::move(item));
  for (const int32_t instance : team.instances) state_.doing[instance] = Doing::prompts;
  return true;
}

std::vector<Scheduler::Answers> Scheduler::answers_by_instance() const {
  std::vector<Answers> answers(state_.limits.ring_size);
  for (const ActiveSequence& running : state_.active) {
    if (!running.begun || running.feeding()) continue;
    const double tokens =
        state_.lengths.expected(running.current(), std::ssize(running.result.tokens));
    for (const int32_t instance : running.instances) {
      Answers& of = answers[instance];
      ++of.count;
      of.context += state_.map.length(running.id);
      of.tokens = std::max(of.tokens, tokens);
    }
  }
  return answers;
}

/// Whether the answers on the prompt's instances go on before it is read further. They never do
/// where a few short passes would end it, so that short requests wait for nobody. Where it has
/// several instances, the one with most answers counts.
bool Scheduler::answers_first(const ActiveSequence& prompt, const std::vector<Answers>& answers,
                              double now) {
  constexpr int64_t few = 4;
  if (state_.limits.policy == job::Policy::chunked || now >= prompt.origin->due_s()) return false;
  const int64_t left = std::ssize(prompt.feed) - prompt.fed;
  if (left <= few * short_pass({prompt.instances, 0, Ring::pass_kv, {}}, prompt)) return false;
  Answers most;
  for (const int32_t instance : prompt.instances)
    if (answers[instance].count > most.count) most = answers[instance];
  if (most.count == 0) return false;
  const auto degree = static_cast<int>(prompt.instances.size());
  const TeamTimes& times = *state_.times.teams;
  const PromptOrAnswers of_both{
      .prompt_s = times.prefill_s(degree, state_.map.length(prompt.id), left,
                                  degree * state_.limits.max_batch_tokens),
      .answers = most.count,
      .answers_s = most.tokens * times.decode_s(degree, 1, most.count, most.context)};
  const bool answers_first = schedule::answers_come_first(of_both);
  // One decision tells enough: of the sequence that began first.
  const Decision decision{"elastic_order",
                          {{"sequence", static_cast<double>(prompt.id)},
                           {"prompt_s", of_both.prompt_s},
                           {"answers", static_cast<double>(of_both.answers)},
                           {"answers_s", of_both.answers_s}},
                          answers_first ? "answers" : "prompt"};
  if (decisions_.empty())
    decisions_.push_back(decision);
  else if (decision.numbers.front().second < decisions_.front().numbers.front().second)
    decisions_.front() = decision;
  return answers_first;
}

/// Seconds until the first instance outside the team has nothing more to do, or `enough` if that is
/// sooner: the rest of its pass, its own prompts and answers, and those of the requests that wait,
/// which begin where there is least to do. Work is counted as of one instance alone.
double Scheduler::others_busy_s(const parallel::Team& team, double now, double enough) const {
  struct Other {
    RemainingWork left;
    double pass_s = 0, seconds = 0;
  };
  const PassTimes alone = state_.times.teams->alone();
  std::map<int32_t, Other> others;
  for (int32_t instance = 0; instance < state_.limits.ring_size; ++instance)
    if (!team.index_of(instance))
      others[instance].pass_s = std::max(0.0, busy_until_[instance] - now);
  for (const ActiveSequence& running : state_.active) {
    if (!running.begun) continue;
    for (const int32_t instance : running.instances)
      if (const auto other = others.find(instance); other != others.end())
        other->second.left += remaining_of(state_, running);
  }
  const auto set_seconds = [&](Other& other) {
    other.seconds = other.pass_s + seconds_of(other.left, alone);
  };
  const auto first = [&] {
    return std::ranges::min_element(others, {},
                                    [](const auto& other) { return other.second.seconds; });
  };
  for (auto& [instance, other] : others) set_seconds(other);
  for (const auto& family : state_.waiting) {
    Other& next = first()->second;
    if (next.seconds >= enough) return enough;
    next.left += remaining_of(state_, family->request);
    set_seconds(next);
  }
  return std::min(enough, first()->second.seconds);
}

/// Most tokens of a pass that is to be short, so that others can go before what comes after it.
int64_t Scheduler::short_pass(const parallel::Team& team, const ActiveSequence& first) const {
  const int64_t degree = team.workers(), cached = state_.map.length(first.id);
  const TeamTimes& times = *state_.times.teams;
  PassRates rates = times.rates(static_cast<int>(degree), PassKind::prefill);
  // The keys before the chunk go round once for each pass, however few rows it has.
  rates.pass_s += times.travel_s(static_cast<int>(degree), static_cast<double>(cached));
  const int64_t rows = short_pass_rows(rates, cached);
  return std::min(state_.limits.batch_tokens(), std::max(state_.limits.chunk_unit(), rows)) *
         degree;
}

/// Most tokens of a pass that reads these prompts. Where requests are not to wait, it is short. Else
/// it ends when another instance should have nothing more to do, which can help from the next pass
/// on. Since that is only expected, passes stay short from long before. They may be longer than
/// where requests are not to wait, so that they cost less than they gain.
int64_t Scheduler::most_tokens(const parallel::Team& team, const ActiveSequence& first,
                               double now) const {
  constexpr int64_t times_longer = 4;
  constexpr double passes_before = 2;
  const int64_t batch = state_.limits.batch_tokens() * batches_of(team);
  if (!state_.limits.elastic || !state_.times.teams) return batch;
  const int64_t least = short_pass(team, first);
  if (waits_least()) return least;
  if (std::min(state_.limits.ring_size, state_.limits.max_instances) <= std::ssize(team.instances))
    return batch;
  const auto seconds = [&](int64_t tokens) {
    return state_.times.teams->prefill_s(team.workers(), state_.map.length(first.id), tokens,
                                         batch);
  };
  const double enough = passes_before * seconds(batch), busy_s = others_busy_s(team, now, enough);
  if (busy_s >= enough) return batch;
  const auto sizes =
      std::views::iota(least, std::max(least, std::min(batch, times_longer * least)));
  const auto too_long = std::ranges::partition_point(
      sizes, [&](int64_t tokens) { return seconds(tokens) <= busy_s; });
  return least + (too_long - sizes.begin());
}

/// Sequences whose prompts could be read on, but for those whose instances' answers come first.
Selection Scheduler::prompts_to_read(const std::vector<Answers>& answers, double now) {
  Selection prompts = order_.prompts(state_);
  if (!waits_least()) return prompts;
  std::erase_if(prompts,
                [&](const ActiveSequence* prompt) { return answers_first(*prompt, answers, now); });
  return prompts;
}

/// Plans prefill of the first prompt whose readers are all idle, with others that have the same
/// instances. A prompt that comes before it keeps its instances from reading another one first, and
/// those that are `called` to help from making further tokens.
bool Scheduler::read_prompts(Plan& plan, const Selection& prompts,
                             const std::vector<Answers>& answers, std::set<int32_t>& called,
                             double now) {
  std::set<int32_t> wanted;  // by prompts that must wait
  for (const ActiveSequence* const running : prompts) {
    const std::vector<int32_t>& instances = running->instances;
    const bool free = std::none_of(instances.begin(), instances.end(),
                                   [&](int32_t instance) { return wanted.contains(instance); });
    if (!free || !all_idle(instances)) {
      wanted.insert(instances.begin(), instances.end());
      continue;
    }
    const std::vector<int32_t> team = readers_of(*running, answers, wanted);
    if (!all_idle(team)) {
      wanted.insert(team.begin(), team.end());
      called.insert(team.begin(), team.end());
      continue;
    }
    plan.teams.front() = {team, 0, Ring::pass_kv, {}};
    if (state_.limits.policy == job::Policy::chunked) ride(plan, team);
    const size_t num_riders = plan.items.size();
    Selection together;
    std::ranges::copy_if(prompts, std::back_inserter(together), [&](const ActiveSequence* other) {
      return other->instances == instances && other->fed >= other->restore_end;
    });
    feed(plan, now, together);
    if (plan.items.empty()) continue;  // there is no time for it
    for (const int32_t instance : team) state_.doing[instance] = Doing::prompts;
    set_sharding(plan, plan.items.size() > num_riders);
    return true;
  }
  return false;
}

/// The sequence's own instances, and then others that help to read its prompt. These have no prompts
/// to read; where no request is to wait long, their answers may wait, and the pass in which they are
/// may have to end first. Without times of teams all idle ones help.
std::vector<int32_t> Scheduler::readers_of(const ActiveSequence& running,
                                           const std::vector<Answers>& answers,
                                           const std::set<int32_t>& wanted) {
  std::vector<int32_t> team = running.instances;
  if (!waits_least() && !state_.waiting.empty()) return team;
  const Room used = admission_.room(state_);
  int64_t waiting = 1;
  for (const int32_t instance : team)
    waiting = std::max(waiting, std::ssize(used[instance].unread) + answers[instance].count);
  std::vector<std::pair<Reader, int32_t>> others;
  for (int32_t instance = 0; instance < state_.limits.ring_size; ++instance) {
    const bool own = std::ranges::count(running.instances, instance) > 0;
    const bool may_help = waits_least() ? state_.doing[instance] != Doing::prompts
                                        : used[instance].idle && used[instance].sequences == 0;
    if (own || !may_help || !used[instance].unread.empty() || wanted.contains(instance)) continue;
    const auto& [count, context, tokens] = answers[instance];
    const double ready_s =
        used[instance].idle ? 0 : state_.times.teams->decode_s(1, 1, count, context);
    others.push_back({{count, ready_s}, instance});
  }
  std::ranges::stable_sort(others, {}, [](const auto& other) {
    return std::pair(other.first.answers, other.first.ready_s);
  });
  const int64_t left = std::ssize(running.feed) - running.fed;
  PromptLeft prompt{.cached = state_.map.length(running.id),
                    .tokens = left,
                    .holders = static_cast<int>(team.size()),
                    .waiting = waiting,
                    .rows_per_instance = state_.limits.max_batch_tokens};
  for (const auto& [reader, instance] : others) {
    const int64_t degree = std::ssize(team) + 1;
    if (degree > state_.limits.max_instances || left < least_rows_of_reader * degree) break;
    prompt.others.push_back(reader);
    team.push_back(instance);
  }
  if (!state_.times.teams || prompt.others.empty()) return team;
  const ChosenDegree choice = reading_degree(*state_.times.teams, prompt);
  decisions_.push_back({"elastic_readers",
                        {{"sequence", static_cast<double>(running.id)},
                         {"tokens", static_cast<double>(left)},
                         {"holders", prompt.holders},
                         {"candidates", static_cast<double>(team.size())},
                         {"instances", choice.degree},
                         {"seconds", choice.seconds},
                         {"alone_s", choice.holders_s}},
                        choice.degree > prompt.holders ? "joined" : "alone"});
  team.resize(static_cast<size_t>(choice.degree));
  return team;
}

/// Lets all sequences that decode on these instances alone ride in the plan's pass.
void Scheduler::ride(Plan& plan, const std::vector<int32_t>& instances) {
  std::map<int32_t, int64_t> rows;
  for (ActiveSequence& running : state_.active) {
    if (!running.begun || running.in_pass > 0 || running.feeding()) continue;
    const std::vector<int32_t>& own = running.instances;
    if (!std::includes(instances.begin(), instances.end(), own.begin(), own.end())) continue;
    const int32_t master = master_of(running, rows, instances.size());
    ++rows[master];
    add_token(plan, running, master);
  }
}

/// Plans the sequence's next token, on an instance of the plan's team.
void Scheduler::add_token(Plan& plan, ActiveSequence& running, int32_t master) {
  PECIA_CHECK(running.unfed.size() == 1, "sequence {} has {} tokens to decode", running.id,
              running.unfed.size());
  const parallel::Team& team = plan.teams.front();
  PlanItem item;
  item.rows = {running.id, state_.map.length(running.id), 1,
               static_cast<int32_t>(team.index_of(master).value()), 0};
  item.tokens = running.unfed;
  item.prompt_end = running.answer_begin;
  item.longest = running.origin->longest;
  item.sampled_index = static_cast<int64_t>(running.result.tokens.size());
  introduce(plan, running);
  state_.cache(running, item, team);
  plan.items.push_back(std::move(item));
}

/// Plans one token of sequences that hang together: each has an instance in common with another.
/// Instances that a waiting prompt needs are left out, unless one of its others reads a prompt now:
/// they meet as soon as the steps under way have ended.
bool Scheduler::make_tokens(Plan& plan, const Selection& prompts, const std::set<int32_t>& called) {
  if (!budget_.decodes) return false;
  std::vector<bool> blocked(state_.limits.ring_size);
  for (int instance = 0; instance < state_.limits.ring_size; ++instance)
    blocked[instance] = state_.doing[instance] != Doing::nothing || called.contains(instance);
  for (const ActiveSequence* const prompt : prompts) {
    const std::vector<int32_t>& instances = prompt->instances;
    const bool reads = std::any_of(instances.begin(), instances.end(), [&](int32_t instance) {
      return state_.doing[instance] == Doing::prompts;
    });
    for (const int32_t instance : instances) blocked[instance] = blocked[instance] || !reads;
  }
  std::vector<ActiveSequence*> ready;
  for (ActiveSequence& running : state_.active) {
    if (!running.begun || running.in_pass > 0 || running.feeding()) continue;
    if (std::none_of(running.instances.begin(), running.instances.end(),
                     [&](int32_t instance) { return blocked[instance]; }))
      ready.push_back(&running);
  }
  if (ready.empty()) return false;
  std::set<int32_t> team(ready.front()->instances.begin(), ready.front()->instances.end());
  const auto meets = [&](const ActiveSequence& running) {
    return std::any_of(running.instances.begin(), running.instances.end(),
                       [&](int32_t instance) { return team.contains(instance); });
  };
  for (bool grew = true; grew;) {
    const size_t before = team.size();
    for (const ActiveSequence* running : ready)
      if (meets(*running)) team.insert(running->instances.begin(), running->instances.end());
    grew = team.size() > before;
  }

  std::erase_if(ready, [&](const ActiveSequence* running) { return !meets(*running); });
  if (prompts.empty() && state_.waiting.empty()) grow(ready, team);
  const size_t most = most_masters(ready, team.size());
  std::map<int32_t, int64_t> rows;  // by master
  std::vector<std::pair<ActiveSequence*, int32_t>> dealt;
  for (ActiveSequence* running : ready) {
    const int32_t master = master_of(*running, rows, most);
    ++rows[master];
    dealt.emplace_back(running, master);
  }
  parallel::Team& ring = plan.teams.front();
  const Ring sent = team.size() == 1 ? Ring::pass_kv : Ring::broadcast_q;  // alone nothing is sent
  ring = {{}, static_cast<int32_t>(team.size() - rows.size()), sent, {}};
  for (const auto& [master, count] : rows) ring.instances.push_back(master);
  for (const int32_t instance : team)
    if (!rows.contains(instance)) ring.instances.push_back(instance);
  for (const auto& [running, master] : dealt) add_token(plan, *running, master);
  for (const int32_t instance : team) state_.doing[instance] = Doing::answers;
  set_sharding(plan, false);
  return true;
}

/// How many instances of a team of this size are to compute the sequences' next tokens.
size_t Scheduler::most_masters(const Selection& ready, size_t degree) {
  if (degree == 1 || !state_.times.teams) return degree;
  int64_t context = 0;
  for (const ActiveSequence* running : ready) context += state_.map.length(running->id);
  const Masters chosen =
      masters(*state_.times.teams, static_cast<int>(degree), std::ssize(ready), context);
  decisions_.push_back({"elastic_masters",
                        {{"instances", static_cast<double>(degree)},
                         {"rows", static_cast<double>(ready.size())},
                         {"masters", chosen.count},
                         {"seconds", chosen.seconds},
                         {"one_s", chosen.one_s},
                         {"most_s", chosen.most_s}},
                        chosen.count > 1 ? "several" : "one"});
  return static_cast<size_t>(chosen.count);
}

/// The instance that computes the sequence's next token and keeps it: one with room, and among these
/// the one with the fewest rows so far, and then with the most room. `rows` are those of the masters
/// so far. When these are `most`, another one is taken only if none of them has room.
int32_t Scheduler::master_of(const ActiveSequence& running, const std::map<int32_t, int64_t>& rows,
                             size_t most) const {
  std::optional<int32_t> chosen;
  std::tuple<bool, int64_t, int64_t> least;
  for (int instance = 0; instance < state_.limits.ring_size; ++instance) {
    const int64_t room =
        state_.map.reserved(running.id, instance) - state_.map.held(running.id, instance);
    if (room == 0) continue;
    const auto found = rows.find(instance);
    const bool new_one = found == rows.end();
    const std::tuple cost(new_one && rows.size() >= most, new_one ? int64_t{0} : found->second,
                          -room);
    if (!chosen || cost < least) chosen = instance, least = cost;
  }
  PECIA_CHECK(chosen, "no instance has room for the next token of sequence {}", running.id);
  return *chosen;
}

/// Tells instances of the plan's team of a sequence, and of its parent, in the state before the pass.
void Scheduler::introduce(Plan& plan, ActiveSequence& running) {
  const parallel::Team& team = plan.teams.front();
  const RequestState& family = *running.origin;
  for (const int64_t sequence : state_.map.lineage(running.id)) {
    Knowledge& known = known_[sequence];
    known.ever.resize(state_.limits.ring_size), known.now.resize(state_.limits.ring_size);
    if (sequence == running.id && std::exchange(running.changed, false))
      known.now.assign(state_.limits.ring_size, false);
    const bool told = std::all_of(team.instances.begin(), team.instances.end(),
                                  [&](int32_t instance) { return known.now[instance]; });
    if (!told) {
      NewSequence added{sequence, state_.map.state(sequence), keeps_tokens(family.request)};
      if (keeps_tokens(family.request)) {
        added.tokens = family.cached;
        if (running.is_branch() && sequence == running.id)
          added.tokens.insert(added.tokens.end(), running.own_cached.begin(),
                              running.own_cached.end());
      }
      const bool twice =
          std::any_of(plan.added.begin(), plan.added.end(),
                      [&](const NewSequence& other) { return other.sequence == sequence; });
      if (!twice) plan.added.push_back(std::move(added));
    }
    // A parent does not change any more, and the sequence does so in this pass.
    if (sequence == running.id) known.now.assign(state_.limits.ring_size, false);
    for (const int32_t instance : team.instances) known.ever[instance] = known.now[instance] = true;
    if (!told && sequence == running.id && running.samples)
      plan.turns.push_back({sequence, running.current().params, running.current().random_key,
                            running.answer_begin, running.current().shape, running.current().bias});
  }
}

/// Notes that a sequence has ended, for the ranks that know it.
void Scheduler::forget(int64_t sequence) {
  const auto known = known_.find(sequence);
  if (known == known_.end()) return;
  for (int instance = 0; instance < state_.limits.ring_size; ++instance)
    if (known->second.ever[instance]) unheard_[instance].push_back(sequence);
  known_.erase(known);
}

}  // namespace pecia::schedule
