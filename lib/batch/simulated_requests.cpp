// SPDX-License-Identifier: Apache-2.0
#include "lib/batch/simulated_requests.hpp"

#include <algorithm>

namespace pecia::batch {

std::vector<schedule::SimulatedRequest> simulated_requests(const Inputs& inputs,
                                                           const job::Job::Batch& batch,
                                                           const IsOpen& is_open) {
  const bool replays = batch.arrivals == job::Arrivals::replay;
  std::vector<const InputRequest*> all;
  const auto has_open_turn = [&](const InputRequest& request) {
    const auto turns = static_cast<int64_t>(inputs.prompt(request).turns.size());
    for (int64_t turn = 0; turn < turns; ++turn)
      if (!is_open || is_open(request.first_row + turn)) return true;
    return false;
  };
  for (const InputRequest& request : inputs.requests())
    if (request.work > 0 && has_open_turn(request)) all.push_back(&request);
  const auto arrival = [&](const InputRequest* request) {
    return inputs.prompt(*request).arrival_s.value_or(0);
  };
  if (replays)
    std::ranges::stable_sort(all, {}, arrival);
  else if (batch.order == job::Order::longest_first)
    std::ranges::stable_sort(all, std::ranges::greater(), &InputRequest::work);
  std::vector<schedule::SimulatedRequest> requests;
  for (const InputRequest* of : all) {
    schedule::SimulatedRequest& request = requests.emplace_back();
    request.followup = inputs.followup(*of);
    for (size_t turn = 0; turn < inputs.prompt(*of).turns.size(); ++turn)
      request.turns.push_back(
          {std::max<int64_t>(1, inputs.kept_tokens(*of, turn)), inputs.answer_tokens(*of, turn)});
    if (replays) request.arrival_s = arrival(of);
  }
  return requests;
}

}  // namespace pecia::batch
