// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/simulated_requests.hpp"

#include <algorithm>

namespace pecia::schedule {
namespace {

SimulatedRequest simulated(const batch::Inputs& inputs, const batch::RequestGroup& group) {
  SimulatedRequest request;
  request.followup = inputs.followup(*group.requests.front());
  if (group.requests.size() > 1) {
    request.followup = io::Followup::fork;
    request.turns.push_back({group.shared_tokens, 0});
  }
  const bool joined = group.requests.size() > 1;
  for (const batch::InputRequest* of : group.requests) {
    const size_t turns = inputs.prompt(*of).turns.size();
    const bool chain = inputs.followup(*of) == io::Followup::chain;
    for (size_t turn = 0; turn < turns; ++turn) {
      // Continuations that are scored count as a part of the prompt.
      int64_t prompt = inputs.kept_tokens(*of, turn) + inputs.continuation_tokens(*of, turn);
      if (joined && turn == 0) prompt -= group.shared_tokens;
      if (joined && turn > 0) prompt += of->stem_end_tokens;
      request.turns.push_back({.prompt_tokens = std::max<int64_t>(1, prompt),
                               .answer_tokens = inputs.answer_tokens(*of, turn),
                               .goes_on = joined && chain && turn + 1 < turns,
                               .shared_tokens = joined && turn == 0 ? group.shared_tokens : 0,
                               .stem_end_tokens = joined && turn > 0 ? of->stem_end_tokens : 0});
    }
  }
  return request;
}

double arrival_of(const batch::Inputs& inputs, const batch::RequestGroup& group) {
  return inputs.prompt(*group.requests.front()).arrival_s.value_or(0);
}

}  // namespace

std::vector<batch::RequestGroup> runnable_groups(const batch::Inputs& inputs,
                                                 const job::Job::Batch& batch,
                                                 const IsOpen& is_open) {
  std::vector<const batch::InputRequest*> runnable;
  const auto has_open_turn = [&](const batch::InputRequest& request) {
    const auto turns = static_cast<int64_t>(inputs.prompt(request).turns.size());
    for (int64_t turn = 0; turn < turns; ++turn)
      if (!is_open || is_open(request.first_row + turn)) return true;
    return false;
  };
  for (const batch::InputRequest& request : inputs.requests())
    if (request.work > 0 && has_open_turn(request)) runnable.push_back(&request);
  std::vector<batch::RequestGroup> all = grouped(inputs, runnable);
  if (batch.arrivals == job::Arrivals::replay)
    std::ranges::stable_sort(
        all, {}, [&](const batch::RequestGroup& group) { return arrival_of(inputs, group); });
  else if (batch.order == job::Order::longest_first)
    std::ranges::stable_sort(all, std::ranges::greater(), &batch::RequestGroup::work);
  return all;
}

std::vector<SimulatedRequest> simulated_requests(const batch::Inputs& inputs,
                                                 const job::Job::Batch& batch,
                                                 const IsOpen& is_open) {
  std::vector<SimulatedRequest> requests;
  for (const batch::RequestGroup& group : runnable_groups(inputs, batch, is_open)) {
    requests.push_back(simulated(inputs, group));
    if (batch.arrivals == job::Arrivals::replay)
      requests.back().arrival_s = arrival_of(inputs, group);
  }
  return requests;
}

}  // namespace pecia::schedule
