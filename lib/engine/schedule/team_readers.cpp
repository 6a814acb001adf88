// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/team_readers.hpp"

#include <algorithm>
#include <map>
#include <ranges>
#include <utility>

#include "lib/engine/schedule/elastic_degree.hpp"
#include "lib/engine/schedule/elastic_urgency.hpp"
#include "lib/engine/schedule/remaining_work.hpp"

namespace pecia::schedule {
namespace {

/// The instances that have the sequence's slots; without changing teams, the first for all.
std::vector<int32_t> instances_of(const SchedulerState& state, const ActiveSequence& sequence) {
  return state.limits.elastic ? sequence.instances : std::vector<int32_t>{0};
}

/// Whether the answers on the prompt's instances go first. Where it has several instances, the one
/// with most answers counts. One decision tells enough: of the sequence that began first.
bool answers_go_first(const SchedulerState& state, const ActiveSequence& prompt,
                      const std::vector<InstanceAnswers>& answers, double now,
                      std::vector<Decision>& decisions) {
  constexpr int64_t few = 4;
  const int64_t left = prompt.unread();
  const std::vector<int32_t> instances = instances_of(state, prompt);
  const bool elastic = state.limits.elastic;
  const int degree = elastic ? static_cast<int>(instances.size()) : state.limits.ring_size;
  if (now >= prompt.origin->due_s() || left <= few * short_pass_tokens(state, degree, prompt))
    return false;
  InstanceAnswers most;
  for (const int32_t instance : instances)
    if (answers[instance].count > most.count) most = answers[instance];
  if (most.count == 0) return false;
  const TeamTimes& times = *state.times.teams;
  const PromptOrAnswers of_both{
      .prompt_s = times.prefill_s(
          degree, state.map.length(prompt.id), left,
          elastic ? degree * state.limits.max_batch_tokens : state.limits.max_batch_tokens),
      .answers = most.count,
      .answers_s =
          most.tokens * times.decode_s(degree, elastic ? 1 : degree, most.count, most.context)};
  const bool first = answers_come_first(of_both);
  Decision decision{"elastic_order",
                    {{"sequence", static_cast<double>(prompt.id)},
                     {"prompt_s", of_both.prompt_s},
                     {"answers", static_cast<double>(of_both.answers)},
                     {"answers_s", of_both.answers_s}},
                    first ? "answers" : "prompt"};
  if (decisions.empty())
    decisions.push_back(std::move(decision));
  else if (decision.numbers.front().second < decisions.front().numbers.front().second)
    decisions.front() = std::move(decision);
  return first;
}

/// Seconds until the first instance outside the team has nothing more to do, or `enough` if that is
/// sooner: the rest of its pass, its own prompts and answers, and those of the requests that wait,
/// which begin where there is least to do. Work is counted as of one instance alone.
double others_busy_s(const SchedulerState& state, const parallel::Team& team,
                     const std::vector<double>& busy_until, double now, double enough) {
  struct Other {
    RemainingWork left;
    double pass_s = 0, seconds = 0;
  };
  const PassTimes alone = state.times.teams->alone();
  std::map<int32_t, Other> others;
  for (int32_t instance = 0; instance < state.limits.ring_size; ++instance)
    if (!team.index_of(instance) && state.limits.same_part(instance, team.instances.front()))
      others[instance].pass_s = std::max(0.0, busy_until[instance] - now);
  for (const ActiveSequence& sequence : state.active) {
    if (!sequence.begun) continue;
    for (const int32_t instance : sequence.instances)
      if (const auto other = others.find(instance); other != others.end())
        other->second.left += remaining_of(state, sequence);
  }
  const auto set_seconds = [&](Other& other) {
    other.seconds = other.pass_s + seconds_of(other.left, alone);
  };
  const auto first = [&] {
    return std::ranges::min_element(others, {},
                                    [](const auto& other) { return other.second.seconds; });
  };
  for (auto& [instance, other] : others) set_seconds(other);
  for (const auto& waiting : state.waiting) {
    Other& next = first()->second;
    if (next.seconds >= enough) return enough;
    next.left += remaining_of(state, waiting->request);
    set_seconds(next);
  }
  return std::min(enough, first()->second.seconds);
}

}  // namespace

std::vector<InstanceAnswers> answers_by_instance(const SchedulerState& state) {
  std::vector<InstanceAnswers> answers(state.limits.ring_size);
  for (const ActiveSequence& sequence : state.active) {
    if (!sequence.begun || sequence.feeding()) continue;
    const double tokens =
        state.lengths.expected(sequence.current(), std::ssize(sequence.result.tokens));
    for (const int32_t instance : instances_of(state, sequence)) {
      InstanceAnswers& of = answers[instance];
      ++of.count;
      of.context += state.map.length(sequence.id);
      of.tokens = std::max(of.tokens, tokens);
    }
  }
  return answers;
}

void let_answers_first(const SchedulerState& state, const std::vector<InstanceAnswers>& answers,
                       double now, Selection& prompts, std::vector<Decision>& decisions) {
  if (!state.limits.waits_least() || state.limits.policy == job::Policy::chunked) return;
  std::erase_if(prompts, [&](const ActiveSequence* prompt) {
    return answers_go_first(state, *prompt, answers, now, decisions);
  });
}

std::vector<int32_t> readers_of(const SchedulerState& state, const ActiveSequence& sequence,
                                const std::vector<InstanceAnswers>& answers,
                                const std::set<int32_t>& wanted, std::vector<Decision>& decisions) {
  const SchedulerLimits& limits = state.limits;
  std::vector<int32_t> team = sequence.needed();
  if (!sequence.readers.empty() && !limits.parts.interrupts) return team;
  if (!limits.waits_least() && !state.waiting.empty()) return team;
  std::vector<bool> taken(limits.ring_size);  // or dealt to prompts of others
  for (const int32_t instance : team) taken[instance] = true;
  for (const ActiveSequence& other : state.active)
    for (const int32_t reader : other.readers) taken[reader] = true;
  const Room used = state.room();
  int64_t waiting = 1;
  for (const int32_t instance : team)
    waiting = std::max(waiting, std::ssize(used[instance].unread) + answers[instance].count);
  std::vector<std::pair<Reader, int32_t>> others;
  for (int32_t instance = 0; instance < limits.ring_size; ++instance) {
    const bool may_help = limits.waits_least()
                              ? state.doing[instance] != Doing::prompts
                              : used[instance].idle && used[instance].sequences == 0;
    if (taken[instance] || !may_help || !limits.same_part(instance, team.front()) ||
        !used[instance].unread.empty() || wanted.contains(instance))
      continue;
    const auto& [count, context, tokens] = answers[instance];
    const double ready_s =
        used[instance].idle ? 0 : state.times.teams->decode_s(1, 1, count, context);
    others.push_back({{count, ready_s}, instance});
  }
  std::ranges::stable_sort(others, {}, [](const auto& other) {
    return std::pair(other.first.answers, other.first.ready_s);
  });
  const int64_t left = sequence.unread();
  PromptLeft prompt{.cached = state.map.length(sequence.id),
                    .tokens = left,
                    .holders = static_cast<int>(team.size()),
                    .waiting = waiting,
                    .rows_per_instance = limits.max_batch_tokens};
  for (const auto& [reader, instance] : others) {
    const int64_t degree = std::ssize(team) + 1;
    if (degree > limits.max_instances || left < least_rows_of_reader * degree) break;
    prompt.others.push_back(reader);
    team.push_back(instance);
  }
  if (!state.times.teams || prompt.others.empty()) return team;
  const ChosenDegree choice = reading_degree(*state.times.teams, prompt);
  decisions.push_back({"elastic_readers",
                       {{"sequence", static_cast<double>(sequence.id)},
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

int64_t short_pass_tokens(const SchedulerState& state, int degree, const ActiveSequence& first) {
  const SchedulerLimits& limits = state.limits;
  const int64_t cached = state.map.length(first.id);
  const TeamTimes& times = *state.times.teams;
  PassRates rates = times.rates(degree, PassKind::prefill);
  // The keys before the chunk go round once for each pass, however few rows it has.
  rates.pass_s += times.travel_s(degree, static_cast<double>(cached));
  const int64_t rows = std::max(limits.chunk_unit(), short_pass_rows(rates, cached));
  return std::min(limits.batch_tokens_of(degree), rows * degree);
}

int64_t most_tokens(const SchedulerState& state, const parallel::Team& team,
                    const ActiveSequence& first, const std::vector<double>& busy_until,
                    double now) {
  constexpr int64_t times_longer = 4;
  constexpr double passes_before = 2;
  const SchedulerLimits& limits = state.limits;
  const int64_t batch = limits.batch_tokens_of(team.workers());
  if (!state.times.teams) return batch;
  const int64_t least = short_pass_tokens(state, team.workers(), first);
  if (limits.waits_least()) return least;
  const InstanceCount count = limits.answers(team.instances.front()) ? limits.answering_instances()
                                                                     : limits.reading_instances();
  if (count.most <= std::ssize(team.instances)) return batch;
  const auto seconds = [&](int64_t tokens) {
    return state.times.teams->prefill_s(team.workers(), state.map.length(first.id), tokens, batch);
  };
  const double enough = passes_before * seconds(batch);
  const double busy_s = others_busy_s(state, team, busy_until, now, enough);
  if (busy_s >= enough) return batch;
  const auto sizes =
      std::views::iota(least, std::max(least, std::min(batch, times_longer * least)));
  const auto too_long = std::ranges::partition_point(
      sizes, [&](int64_t tokens) { return seconds(tokens) <= busy_s; });
  return least + (too_long - sizes.begin());
}

}  // namespace pecia::schedule
