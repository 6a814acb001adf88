// SPDX-License-Identifier: Apache-2.0
#include "lib/batch/source.hpp"

#include <algorithm>

namespace pecia::batch {
namespace {

bool settled(io::TurnState state) {
  return state == io::TurnState::done || state == io::TurnState::failed;
}

}  // namespace

std::vector<const InputRequest*> open_requests(const Inputs& inputs,
                                               const io::ResultsFile& results) {
  std::vector<const InputRequest*> open;
  for (const InputRequest& request : inputs.requests()) {
    const auto turns = static_cast<int64_t>(inputs.prompt(request).turns.size());
    bool done = true;
    for (int64_t turn = 0; turn < turns; ++turn)
      done = done && settled(results.state(request.first_row + turn));
    if (!done) open.push_back(&request);
  }
  return open;
}

schedule::Request load_open(const Inputs& inputs, const io::ResultsFile& results,
                            const InputRequest& request) {
  schedule::Request loaded = inputs.load(request);
  for (schedule::Turn& turn : loaded.turns) {
    const io::TurnState state = results.state(turn.row);
    if (state == io::TurnState::open) continue;
    io::TurnResult earlier = results.read(turn.row);
    turn.recorded = settled(state);
    if (state == io::TurnState::failed) {
      turn.refused = earlier.error;
    } else {
      turn.finished = state == io::TurnState::done;
      turn.answer = std::move(earlier);
    }
  }
  return loaded;
}

/// Lengths of the prompt and of the answer that the request begins with.
std::pair<int64_t, int64_t> first_lengths(const Inputs& inputs, const InputRequest& request) {
  // The prompt of a fork's first turn is read for its questions, so the second turn's comes with
  // it.
  const auto turns = static_cast<int64_t>(inputs.prompt(request).turns.size());
  const int64_t answer = inputs.answer_tokens(request, 0);
  if (answer > 0 || turns == 1) return {inputs.kept_tokens(request, 0), answer};
  return {inputs.kept_tokens(request, 0) + inputs.kept_tokens(request, 1),
          inputs.answer_tokens(request, 1)};
}

std::vector<schedule::Finished> refused_at_once(schedule::Request request,
                                                const schedule::SchedulerLimits& limits) {
  schedule::Scheduler scheduler(limits);
  scheduler.add(std::move(request), 0);
  return scheduler.take_finished();
}

ListSource::ListSource(const Inputs& inputs, const io::ResultsFile& results, job::Order order,
                       comm::SharedCounter& counter)
    : inputs_(inputs), results_(results), counter_(counter), open_(open_requests(inputs, results)) {
  if (order == job::Order::longest_first)
    std::stable_sort(open_.begin(), open_.end(), [](const InputRequest* a, const InputRequest* b) {
      return a->work > b->work;
    });
  std::stable_partition(open_.begin(), open_.end(), [&](const InputRequest* request) {
    for (size_t turn = 0; turn < inputs.prompt(*request).turns.size(); ++turn)
      if (results.state(request->first_row + static_cast<int64_t>(turn)) == io::TurnState::partial)
        return true;
    return false;
  });
}

std::optional<schedule::Request> ListSource::take(const schedule::Scheduler& scheduler,
                                                  double now) {
  while (!exhausted_ && scheduler.wants_more()) {
    const int64_t index = counter_.next();
    exhausted_ = index >= static_cast<int64_t>(open_.size());
    if (exhausted_) break;
    const auto [prompt, answer] = first_lengths(inputs_, *open_[index]);
    // A request that cannot run takes no time.
    if (open_[index]->work == 0 || scheduler.could_finish(prompt, answer, now))
      return load_open(inputs_, results_, *open_[index]);
    passed_over_.push_back(open_[index]);
  }
  if (!exhausted_ || passed_over_.empty()) return {};
  if (scheduler.wants_more())
    if (const auto faster = reconsider(scheduler, now)) return faster;
  if (!scheduler.begins_anyway(now)) return {};
  return take_passed_over(scheduler);
}

/// Finds a passed-over request that would be answered in time after all. They are tried again
/// whenever passes turn out to be faster than expected.
std::optional<schedule::Request> ListSource::reconsider(const schedule::Scheduler& scheduler,
                                                        double now) {
  constexpr double faster = 0.95;
  constexpr int64_t some_prompt = 1000, some_answer = 100;
  const double speed_s = scheduler.seconds_alone(some_prompt, some_answer);
  if (scheduler.limited() && speed_s > faster * considered_at_s_) return {};
  const auto found =
      std::find_if(passed_over_.begin(), passed_over_.end(), [&](const auto* request) {
        const auto [prompt, answer] = first_lengths(inputs_, *request);
        return scheduler.could_finish(prompt, answer, now);
      });
  if (found == passed_over_.end()) {
    considered_at_s_ = speed_s;
    return {};
  }
  const InputRequest& request = **found;
  passed_over_.erase(found);
  return load_open(inputs_, results_, request);
}

/// Takes the first passed-over request where what is read of it is kept, else the quickest.
schedule::Request ListSource::take_passed_over(const schedule::Scheduler& scheduler) {
  auto chosen = passed_over_.begin();
  if (!scheduler.keeps_kv())
    chosen = std::min_element(chosen, passed_over_.end(),
                              [](const auto* a, const auto* b) { return a->work < b->work; });
  const InputRequest& request = **chosen;
  passed_over_.erase(chosen);
  return load_open(inputs_, results_, request);
}

}  // namespace pecia::batch
