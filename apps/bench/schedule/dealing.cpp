// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/schedule/dealing.hpp"

#include "apps/bench/support/timing.hpp"

namespace pecia::bench {
namespace {

using schedule::LoongLimits;
using schedule::LoongView;

LoongView view_of(int instances, const std::vector<int64_t>& prompts, int64_t slots,
                  bool half_busy) {
  constexpr int64_t answer = 300;
  LoongView view;
  for (const int64_t tokens : prompts)
    view.waiting.push_back({tokens, tokens + answer, 1.0 / static_cast<double>(tokens)});
  view.instances.assign(instances, {.free_slots = slots});
  for (int32_t i = 0; half_busy && i < instances; i += 2) {
    const double rest_s = 10.0 * (i + 1) / instances;
    view.instances[i].answers = view.answers.size();
    view.instances[i].used_slots = slots / 2, view.instances[i].free_slots = slots / 2;
    view.answers.push_back({{i}, rest_s, 1.0 / answer, 1, slots / 2, true});
  }
  return view;
}

}  // namespace

Dealing deal(int instances, const std::vector<int64_t>& prompts, int64_t slots_of_an_instance,
             const schedule::TeamTimes& times, schedule::ReadingGoal goal, bool half_busy) {
  const LoongView view = view_of(instances, prompts, slots_of_an_instance, half_busy);
  const LoongLimits limits{.goal = goal, .batch = {.rows_per_instance = 8192}, .sequences = 64};
  const Stopwatch watch;
  Dealing found;
  schedule::Dispatched dispatched = dispatch(view, times, limits);
  shrink(view, times, limits, dispatched);
  found.prompts = dispatched.prompts;
  if (found.prompts > 0) {
    const std::vector<schedule::PromptToRead> begin(view.waiting.begin(),
                                                    view.waiting.begin() + found.prompts);
    std::vector<int64_t> free;
    for (const int32_t instance : dispatched.instances)
      free.push_back(view.instances[instance].free_slots);
    std::vector<schedule::LoongInstance> left = view.instances;
    for (schedule::ReadingBatch& batch : read_in_batches(times, begin, free, goal, limits.batch)) {
      for (size_t& instance : batch.instances) instance = dispatched.instances[instance];
      keepers(begin, batch, times, limits, left);
      ++found.batches;
    }
  }
  found.seconds = watch.seconds();
  return found;
}

}  // namespace pecia::bench
