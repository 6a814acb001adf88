// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/execute/source.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

namespace pecia::execute {
namespace {

bool settled(io::TurnState state) {
  return state == io::TurnState::done || state == io::TurnState::failed;
}

}  // namespace

std::vector<const batch::InputRequest*> open_requests(const batch::Inputs& inputs,
                                                      const io::ResultsFile& results) {
  std::vector<const batch::InputRequest*> open;
  const std::vector<io::TurnState> states = results.states();
  for (const batch::InputRequest& request : inputs.requests()) {
    const auto turns = static_cast<int64_t>(inputs.prompt(request).turns.size());
    bool done = true;
    for (int64_t turn = 0; turn < turns; ++turn)
      done = done && settled(states.at(request.first_row + turn));
    if (!done) open.push_back(&request);
  }
  return open;
}

batch::Request load_open(const batch::Inputs& inputs, const io::ResultsFile& results,
                         const batch::InputRequest& request) {
  batch::Request loaded = inputs.load(request);
  for (batch::Turn& turn : loaded.turns) {
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

std::pair<int64_t, int64_t> first_lengths(const batch::Inputs& inputs,
                                          const batch::InputRequest& request) {
  // The prompt of a fork's first turn is read for its questions, so the second turn's comes with
  // it.
  const auto turns = static_cast<int64_t>(inputs.prompt(request).turns.size());
  const int64_t answer = inputs.answer_tokens(request, 0);
  if (answer > 0 || turns == 1) return {inputs.kept_tokens(request, 0), answer};
  return {inputs.kept_tokens(request, 0) + inputs.kept_tokens(request, 1),
          inputs.answer_tokens(request, 1)};
}

std::vector<batch::Finished> refused_at_once(batch::Request request,
                                             const schedule::SchedulerLimits& limits) {
  schedule::Scheduler scheduler(limits);
  scheduler.add(std::move(request), 0);
  return scheduler.take_finished();
}

ListSource::ListSource(const batch::Inputs& inputs, const io::ResultsFile& results,
                       job::Order order, comm::SharedCounter& counter)
    : inputs_(inputs),
      results_(results),
      counter_(counter),
      open_(grouped(inputs, open_requests(inputs, results))) {
  if (order == job::Order::longest_first)
    std::ranges::stable_sort(open_, std::ranges::greater(), &batch::RequestGroup::work);
  const std::vector<io::TurnState> states = results.states();
  std::ranges::stable_partition(open_, [&](const batch::RequestGroup& group) {
    return std::ranges::any_of(group.requests, [&](const batch::InputRequest* request) {
      for (size_t turn = 0; turn < inputs.prompt(*request).turns.size(); ++turn)
        if (states.at(request->first_row + turn) == io::TurnState::partial) return true;
      return false;
    });
  });
}

int64_t ListSource::passed_over() const {
  int64_t requests = 0;
  for (const batch::RequestGroup* group : passed_over_) requests += std::ssize(group->requests);
  return requests;
}

batch::Request ListSource::load(const batch::RequestGroup& group,
                                const schedule::Scheduler& scheduler) {
  std::vector<batch::Request> requests;
  for (const batch::InputRequest* request : group.requests)
    requests.push_back(load_open(inputs_, results_, *request));
  if (requests.size() > 1)
    if (auto together = joined(requests, group.shared_tokens);
        together && scheduler.fits(*together))
      return std::move(*together);
  std::ranges::move(requests, std::back_inserter(apart_));
  batch::Request first = std::move(apart_.front());
  apart_.pop_front();
  return first;
}

std::optional<batch::Request> ListSource::take(const schedule::Scheduler& scheduler, double now) {
  if (!apart_.empty() && scheduler.wants_more()) {
    batch::Request next = std::move(apart_.front());
    apart_.pop_front();
    return next;
  }
  while (!exhausted_ && scheduler.wants_more()) {
    const int64_t index = counter_.next();
    exhausted_ = index >= static_cast<int64_t>(open_.size());
    if (exhausted_) break;
    const batch::RequestGroup& group = open_[index];
    const auto [prompt, answer] = first_lengths(inputs_, *group.requests.front());
    // A request that cannot run takes no time.
    if (group.work == 0 || scheduler.could_finish(prompt, answer, now))
      return load(group, scheduler);
    passed_over_.push_back(&group);
  }
  if (!exhausted_ || passed_over_.empty()) return {};
  if (scheduler.wants_more())
    if (const auto faster = reconsider(scheduler, now)) return faster;
  if (!scheduler.begins_anyway(now)) return {};
  return take_passed_over(scheduler);
}

/// Finds passed-over requests that would be answered in time after all. They are tried again
/// whenever passes turn out to be faster than expected.
std::optional<batch::Request> ListSource::reconsider(const schedule::Scheduler& scheduler,
                                                     double now) {
  constexpr double faster = 0.95;
  constexpr int64_t some_prompt = 1000, some_answer = 100;
  const double speed_s = scheduler.seconds_alone(some_prompt, some_answer);
  if (scheduler.limited() && speed_s > faster * considered_at_s_) return {};
  const auto found = std::ranges::find_if(passed_over_, [&](const batch::RequestGroup* group) {
    const auto [prompt, answer] = first_lengths(inputs_, *group->requests.front());
    return scheduler.could_finish(prompt, answer, now);
  });
  if (found == passed_over_.end()) {
    considered_at_s_ = speed_s;
    return {};
  }
  const batch::RequestGroup& group = **found;
  passed_over_.erase(found);
  return load(group, scheduler);
}

/// Takes the first passed-over group where what is read of it is kept, else the quickest.
batch::Request ListSource::take_passed_over(const schedule::Scheduler& scheduler) {
  auto chosen = passed_over_.begin();
  if (!scheduler.keeps_kv())
    chosen = std::ranges::min_element(passed_over_, {}, &batch::RequestGroup::work);
  const batch::RequestGroup& group = **chosen;
  passed_over_.erase(chosen);
  return load(group, scheduler);
}

}  // namespace pecia::execute
