// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/loong_dispatcher.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace pecia::schedule {
namespace {

double one_by(double tokens) {
  return 1 / std::max(1.0, tokens);
}

/// Adds the answer to the team of its instances, which may join teams.
void add_answer(const SchedulerState& state, const ActiveSequence& sequence, LoongView& view) {
  AnswerTeam team{.instances = sequence.instances};
  const auto given = std::ssize(sequence.result.tokens);
  const double left = state.lengths.expected(sequence.current(), given);
  team.rest_s = left;  // in tokens, until all answers are known
  team.weight = one_by(left + static_cast<double>(given));
  team.context = state.map.length(sequence.id);
  team.can_move = !sequence.origin->is_fork() && sequence.leaves < 0;
  team.answers = 1;
  std::erase_if(view.answers, [&](const AnswerTeam& other) {
    const bool meets = std::ranges::any_of(other.instances, [&](int32_t instance) {
      return std::ranges::count(sequence.instances, instance) > 0;
    });
    if (!meets) return false;
    for (const int32_t instance : other.instances)
      if (std::ranges::count(team.instances, instance) == 0) team.instances.push_back(instance);
    team.rest_s = std::max(team.rest_s, other.rest_s);
    team.weight += other.weight, team.context += other.context, team.answers += other.answers;
    team.can_move = team.can_move && other.can_move;
    return true;
  });
  view.answers.push_back(std::move(team));
}

LoongView view_of(const SchedulerState& state) {
  LoongView view;
  const Slots free = state.free_slots();
  view.instances.resize(state.limits.ring_size);
  for (size_t instance = 0; instance < view.instances.size(); ++instance)
    view.instances[instance].free_slots =
        state.awaits_return(static_cast<int32_t>(instance)) ? 0 : free[instance];
  for (const ActiveSequence& sequence : state.active) {
    const bool answers = sequence.begun && !sequence.feeding();
    for (const int32_t instance : sequence.instances) {
      LoongInstance& of = view.instances[instance];
      ++of.sequences;
      of.used_slots += state.map.reserved(sequence.id, instance);
      of.reads = of.reads || !answers;
    }
    for (const int32_t reader : sequence.readers) view.instances[reader].reads = true;
    if (answers) add_answer(state, sequence, view);
  }
  for (size_t i = 0; i < view.answers.size(); ++i) {
    AnswerTeam& team = view.answers[i];
    team.rest_s *= state.times.teams->decode_s(static_cast<int>(team.instances.size()), 1,
                                               team.answers, team.context);
    for (const int32_t instance : team.instances) view.instances[instance].answers = i;
  }
  return view;
}

PromptToRead prompt_of(const SchedulerState& state, const Admission& admission,
                       const RequestState& request) {
  const int64_t tokens = first_tokens(request.request);
  return {tokens, admission.to_begin(state, request.request), one_by(static_cast<double>(tokens))};
}

Slots by_instance(const SchedulerState& state, const std::vector<int32_t>& instances,
                  const std::vector<int64_t>& by_place) {
  Slots slots(state.limits.ring_size);
  for (size_t place = 0; place < instances.size(); ++place)
    slots[instances[place]] = by_place[place];
  return slots;
}

/// Gives the team's sequences on the instance the same slots on others of the team. Those that hold
/// keys there leave it with a pass of their own; the others have left it now.
void leave(SchedulerState& state, const std::vector<int32_t>& team, int32_t instance) {
  for (ActiveSequence& sequence : state.active) {
    if (std::ranges::count(sequence.instances, instance) == 0) continue;
    int64_t needed = state.map.reserved(sequence.id, instance);
    std::vector<int32_t> others = team;
    std::erase(others, instance);
    const Slots free = state.free_slots();
    std::ranges::stable_sort(others, std::ranges::greater(), [&](int32_t other) {
      return std::pair(state.map.reserved(sequence.id, other) > 0, free[other]);
    });
    for (const int32_t other : others) {
      const int64_t taken = std::min(needed, free[other]);
      if (taken == 0) continue;
      state.map.set_reserved(sequence.id, other, state.map.reserved(sequence.id, other) + taken);
      needed -= taken;
    }
    PECIA_CHECK(needed == 0, "{} slots of sequence {} have no room beside instance {}", needed,
                sequence.id, instance);
    if (state.map.held(sequence.id, instance) > 0)
      sequence.leaves = instance;
    else
      state.map.set_reserved(sequence.id, instance, 0);
    sequence.instances = state.instances_of(sequence.id);
    sequence.changed = true;
  }
}

}  // namespace

LoongDispatcher::LoongDispatcher(const SchedulerLimits& limits)
    : limits_{.goal = limits.waits_least() ? ReadingGoal::mean : ReadingGoal::makespan,
              .batch = {limits.max_batch_tokens, limits.min_instances, limits.max_instances},
              .sequences = (limits.max_sequences + limits.ring_size - 1) / limits.ring_size,
              .parts = limits.parts},
      kv_tokens_(limits.kv_tokens) {}

/// Whether the batch would take a tenth less of all instances' time if its prompts waited until
/// there are free slots on as few instances as have them.
bool LoongDispatcher::costs_more_now(const std::vector<PromptToRead>& prompts,
                                     const ReadingBatch& batch, const TeamTimes& times) const {
  constexpr double least_gain = 0.1;
  double later_s = 0;
  for (const size_t prompt : batch.prompts) {
    const auto least = static_cast<int>(std::max<int64_t>(
        limits_.batch.least, (prompts[prompt].slots + kv_tokens_ - 1) / kv_tokens_));
    later_s += least * reading_s(times, {prompts[prompt]}, least, limits_.batch.rows_per_instance);
  }
  return later_s < (1 - least_gain) * batch.seconds * static_cast<double>(batch.instances.size());
}

std::vector<Beginning> LoongDispatcher::join(
    const SchedulerState& state, const Admission& admission,
    std::span<const std::shared_ptr<RequestState>> waiting) const {
  constexpr size_t most_waiting = 16;  // that are looked at in one call
  std::vector<Beginning> beginning;
  if (!limits_.parts.interrupts || limits_.goal != ReadingGoal::mean || waiting.empty())
    return beginning;
  const TeamTimes& times = *state.times.teams;
  std::map<int64_t, BatchUnderWay> by_number;
  for (const ActiveSequence& sequence : state.active) {
    if (sequence.readers.empty() || sequence.unread() <= sequence.in_pass) continue;
    BatchUnderWay& of = by_number[sequence.batch];
    of.number = sequence.batch, of.readers = sequence.readers;
    of.rest_s += times.prefill_s(static_cast<int>(of.readers.size()), state.map.length(sequence.id),
                                 sequence.unread() - sequence.in_pass,
                                 limits_.batch.rows_per_instance * std::ssize(of.readers));
    of.weight += one_by(static_cast<double>(first_tokens(sequence.request())));
  }
  if (by_number.empty()) return beginning;
  std::vector<BatchUnderWay> batches;
  for (auto& [number, of] : by_number) batches.push_back(std::move(of));
  LoongView view = view_of(state);
  for (const auto& request : waiting.first(std::min(waiting.size(), most_waiting))) {
    const PromptToRead prompt = prompt_of(state, admission, *request);
    std::vector<std::vector<int64_t>> slots;
    std::vector<LoongInstance> left;
    const auto has_room = [&](size_t which) {
      const std::vector<int32_t>& readers = batches[which].readers;
      const ReadingBatch one{{0}, {readers.begin(), readers.end()}, 0};
      std::vector<LoongInstance> instances = view.instances;
      auto found = keepers({prompt}, one, times, limits_, instances);
      if (found.empty()) return false;
      slots = std::move(found), left = std::move(instances);
      return true;
    };
    const auto chosen = joined_batch(prompt, batches, times, limits_, has_room);
    if (!chosen) continue;
    view.instances = std::move(left);
    BatchUnderWay& batch = batches[*chosen];
    batch.weight += prompt.weight;
    beginning.push_back(
        {request, by_instance(state, batch.readers, slots.front()), batch.readers, batch.number});
  }
  return beginning;
}

std::vector<Beginning> LoongDispatcher::dispatch(
    SchedulerState& state, const Admission& admission,
    std::span<const std::shared_ptr<RequestState>> waiting) {
  if (waiting.empty()) return {};
  const TeamTimes& times = *state.times.teams;
  LoongView view = view_of(state);
  for (const auto& request : waiting) view.waiting.push_back(prompt_of(state, admission, *request));
  Dispatched dispatched = schedule::dispatch(view, times, limits_);
  if (dispatched.prompts == 0) return {};
  const std::vector<int32_t> leaving = shrink(view, times, limits_, dispatched);
  view.waiting.resize(dispatched.prompts);
  Slots free;
  for (const int32_t instance : dispatched.instances)
    free.push_back(view.instances[instance].free_slots);
  std::vector<Beginning> beginning;
  for (ReadingBatch& batch :
       read_in_batches(times, view.waiting, free, limits_.goal, limits_.batch)) {
    if (limits_.goal == ReadingGoal::makespan && !state.active.empty() &&
        costs_more_now(view.waiting, batch, times))
      continue;
    for (size_t& instance : batch.instances) instance = dispatched.instances[instance];
    const auto slots = keepers(view.waiting, batch, times, limits_, view.instances);
    const std::vector<int32_t> places(batch.instances.begin(), batch.instances.end());
    std::vector<int32_t> readers = places;
    std::ranges::sort(readers);
    // Of a makespan others help with each pass as they become free.
    const bool fixed = limits_.goal == ReadingGoal::mean;
    for (size_t i = 0; i < slots.size(); ++i)
      beginning.push_back({waiting[batch.prompts[i]], by_instance(state, places, slots[i]),
                           fixed ? readers : std::vector<int32_t>{}, fixed ? batches_ : -1});
    if (slots.empty()) continue;
    for (const int32_t instance : leaving)
      if (std::ranges::count(readers, instance) > 0)
        leave(state, view.answers[*view.instances[instance].answers].instances, instance);
    ++batches_;
  }
  return beginning;
}

}  // namespace pecia::schedule
