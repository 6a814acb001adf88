// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/loong_dispatch.hpp"

#include <algorithm>
#include <limits>

#include "lib/engine/schedule/elastic_place.hpp"
#include "lib/engine/schedule/elastic_urgency.hpp"

namespace pecia::schedule {
namespace {

bool is_idle(const LoongInstance& instance) {
  return !instance.reads && !instance.answers;
}

bool has(const std::vector<int32_t>& instances, int32_t instance) {
  return std::ranges::find(instances, instance) != instances.end();
}

/// Seconds in which these instances read the first prompts together.
double read_s(const LoongView& view, size_t prompts, size_t instances, const TeamTimes& times,
              const LoongLimits& limits) {
  return reading_s(times, {view.waiting.begin(), view.waiting.begin() + prompts},
                   static_cast<int>(instances), limits.batch.rows_per_instance);
}

/// Instances with answers and no prompts, those with the most free slots first.
std::vector<int32_t> with_answers(const LoongView& view) {
  std::vector<int32_t> found;
  for (size_t i = 0; i < view.instances.size(); ++i)
    if (view.instances[i].answers && !view.instances[i].reads)
      found.push_back(static_cast<int32_t>(i));
  std::ranges::stable_sort(found, std::ranges::greater(),
                           [&](int32_t i) { return view.instances[i].free_slots; });
  return found;
}

/// Whether others of the team have room for what its answers use on an instance.
bool has_room_elsewhere(const LoongView& view, int32_t instance,
                        const std::vector<int32_t>& leaving) {
  const LoongInstance& from = view.instances[instance];
  int64_t free = 0;
  for (const int32_t other : view.answers[*from.answers].instances)
    if (other != instance && !has(leaving, other) && !view.instances[other].reads)
      free += view.instances[other].free_slots;
  return free >= from.used_slots;
}

}  // namespace

Dispatched dispatch(const LoongView& view, const TeamTimes& times, const LoongLimits& limits) {
  Dispatched taken;
  int64_t free = 0, filled = 0;
  const int64_t enough = std::min(limits.batch.rows_per_instance,
                                  short_pass_rows(times.rates(1, PassKind::prefill), 0));
  const auto take = [&](int32_t instance) {
    taken.instances.push_back(instance);
    free += view.instances[instance].free_slots;
  };
  for (size_t i = 0; i < view.instances.size(); ++i)
    if (is_idle(view.instances[i])) take(static_cast<int32_t>(i));
  const auto preempts = [&](const PromptToRead& prompt, int32_t instance) {
    if (limits.goal == ReadingGoal::makespan) return true;
    const AnswerTeam& answers = view.answers[*view.instances[instance].answers];
    double waits_s = answers.rest_s;
    if (taken.prompts > 0 && !taken.instances.empty())
      waits_s =
          std::min(waits_s, read_s(view, taken.prompts, taken.instances.size(), times, limits));
    const double gain = prompt.weight * waits_s;
    const double cost =
        answers.weight * read_s(view, taken.prompts + 1, taken.instances.size() + 1, times, limits);
    return gain > cost;
  };
  const std::vector<int32_t> others = with_answers(view);
  auto other = others.begin();
  while (taken.prompts < view.waiting.size()) {
    const PromptToRead& prompt = view.waiting[taken.prompts];
    const bool fits = prompt.slots <= free;
    const bool is_full = filled >= enough * std::ssize(taken.instances);
    if (fits && !is_full) {
      ++taken.prompts;
      free -= prompt.slots;
      filled += std::min(prompt.tokens, enough);
      continue;
    }
    if (other == others.end() || std::ssize(taken.instances) >= times.degrees() ||
        !preempts(prompt, *other))
      break;
    take(*other++);
  }
  if (taken.prompts == 0) taken.instances.clear();
  return taken;
}

std::vector<int32_t> shrink(const LoongView& view, const TeamTimes& times,
                            const LoongLimits& limits, Dispatched& dispatched) {
  std::vector<int32_t> leaving;
  if (dispatched.prompts == 0 || limits.goal != ReadingGoal::mean || limits.batch.least > 1 ||
      !limits.parts.shrinks)
    return leaving;
  double weight = 0;
  for (size_t i = 0; i < dispatched.prompts; ++i) weight += view.waiting[i].weight;
  for (;;) {
    std::optional<int32_t> least;
    for (size_t i = 0; i < view.instances.size(); ++i) {
      const auto instance = static_cast<int32_t>(i);
      const LoongInstance& of = view.instances[i];
      if (!of.answers || of.reads || has(dispatched.instances, instance)) continue;
      const AnswerTeam& team = view.answers[*of.answers];
      const bool moves = std::ranges::any_of(
          leaving, [&](int32_t other) { return view.instances[other].answers == of.answers; });
      const bool meets = std::ranges::any_of(
          team.instances, [&](int32_t other) { return has(dispatched.instances, other); });
      if (!team.can_move || moves || meets || !has_room_elsewhere(view, instance, leaving))
        continue;
      if (!least || of.used_slots < view.instances[*least].used_slots) least = instance;
    }
    const auto before = static_cast<int>(dispatched.instances.size());
    if (!least || before + 1 > std::min(times.degrees(), limits.batch.most)) return leaving;
    const AnswerTeam& team = view.answers[*view.instances[*least].answers];
    const double gain = weight * (read_s(view, dispatched.prompts, before, times, limits) -
                                  read_s(view, dispatched.prompts, before + 1, times, limits));
    const double cost = team.weight * times.travel_s(static_cast<int>(team.instances.size()),
                                                     static_cast<double>(team.context));
    if (gain <= cost) return leaving;
    leaving.push_back(*least);
    dispatched.instances.push_back(*least);
  }
}

std::optional<size_t> joined_batch(const PromptToRead& prompt,
                                   const std::vector<BatchUnderWay>& batches,
                                   const TeamTimes& times, const LoongLimits& limits,
                                   const std::function<bool(size_t)>& has_room) {
  std::optional<size_t> chosen;
  double most = 0;
  for (size_t i = 0; i < batches.size(); ++i) {
    const double cost =
        batches[i].weight * reading_s(times, {prompt}, static_cast<int>(batches[i].readers.size()),
                                      limits.batch.rows_per_instance);
    const double gain = prompt.weight * batches[i].rest_s;
    if (gain - cost > most && has_room(i)) chosen = i, most = gain - cost;
  }
  return chosen;
}

namespace {

/// Slots for a prompt on one of the first `count` places of its batch; absent: none has room.
std::optional<std::vector<int64_t>> on_one(const std::vector<LoongInstance>& places, size_t count,
                                           int64_t slots, int64_t most_sequences) {
  const auto load = [&](size_t place) {
    return std::pair(places[place].sequences, -places[place].free_slots);
  };
  std::optional<size_t> keeper;
  for (size_t place = 0; place < count; ++place) {
    if (places[place].free_slots < slots || places[place].sequences >= most_sequences) continue;
    if (!keeper || load(place) < load(*keeper)) keeper = place;
  }
  if (!keeper) return {};
  std::vector<int64_t> own(places.size());
  own[*keeper] = slots;
  return own;
}

/// Slots for a prompt on `least` or more of the first `count` places of its batch.
std::optional<std::vector<int64_t>> on_several(const std::vector<LoongInstance>& places,
                                               size_t least, size_t count, int64_t slots) {
  std::vector<int64_t> free;
  for (size_t place = 0; place < count; ++place) free.push_back(places[place].free_slots);
  auto shares = slots_on_fewest(slots, free, static_cast<int>(least), static_cast<int>(count));
  if (shares) shares->resize(places.size());
  return shares;
}

}  // namespace

std::vector<std::vector<int64_t>> keepers(const std::vector<PromptToRead>& prompts,
                                          const ReadingBatch& batch, const TeamTimes& times,
                                          const LoongLimits& limits,
                                          std::vector<LoongInstance>& instances) {
  const PassRates decode = times.rates(1, PassKind::decode);
  const auto rows =
      static_cast<size_t>(std::clamp(decode.pass_s / std::max(decode.row_s, 1e-12), 1.0, 1e9));
  const size_t most = batch.instances.size(), num_prompts = batch.prompts.size();
  const auto several = static_cast<size_t>(limits.batch.least);
  const size_t least = limits.parts.scales_down
                           ? std::min(most, std::max(several, (num_prompts + rows - 1) / rows))
                           : most;
  std::vector<LoongInstance> places;
  for (const size_t instance : batch.instances) places.push_back(instances[instance]);
  const int64_t largest = std::ranges::max(places, {}, &LoongInstance::free_slots).free_slots;
  for (size_t count = least; count <= most; ++count) {
    std::vector<LoongInstance> left = places;
    std::vector<std::vector<int64_t>> slots;
    for (const size_t prompt : batch.prompts) {
      const int64_t needed = prompts[prompt].slots;
      std::optional<std::vector<int64_t>> own;
      if (several == 1 && limits.parts.scales_down)
        own = on_one(left, count, needed,
                     count < most ? limits.sequences : std::numeric_limits<int64_t>::max());
      if (!own && (count == most || several > 1 || needed > largest))
        own = on_several(left, limits.parts.scales_down ? several : count, count, needed);
      if (!own) break;
      for (size_t place = 0; place < left.size(); ++place) {
        left[place].free_slots -= (*own)[place];
        left[place].sequences += (*own)[place] > 0;
      }
      slots.push_back(std::move(*own));
    }
    if (slots.size() < num_prompts) continue;
    for (size_t place = 0; place < most; ++place) instances[batch.instances[place]] = left[place];
    return slots;
  }
  return {};
}

}  // namespace pecia::schedule
