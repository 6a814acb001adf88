// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A scheduler's state for tests of one policy.

#include <memory>
#include <vector>

#include "lib/engine/schedule/scheduler_state.hpp"
#include "tests/schedule/random_workload.hpp"

namespace pecia::test {

/// Rooms for what a test asks; a pass has 100 tokens.
inline schedule::SchedulerLimits small_limits(int instances = 1, int64_t kv_tokens = 1000) {
  schedule::SchedulerLimits limits;
  limits.ring_size = instances;
  limits.kv_tokens = kv_tokens;
  limits.max_sequences = 8;
  limits.max_batch_tokens = 100;
  limits.max_positions = 10000;
  limits.vocab = 100;
  return limits;
}

/// A pass takes a second, and next to nothing for what it reads.
inline schedule::PassTimes second_passes() {
  return {schedule::RateFit({1, 1e-12, 1e-12}), schedule::RateFit({1, 1e-12, 1e-12})};
}

inline std::shared_ptr<schedule::RequestState> state_of(batch::Request request) {
  auto state = std::make_shared<schedule::RequestState>();
  state->request = std::move(request);
  return state;
}

/// A fork of a prefix and branches with this many tokens each, and answers of 10 to the branches.
inline batch::Request fork_of(int64_t prefix, const std::vector<int64_t>& branches) {
  batch::Request fork = ask(0, prefix, 0);
  fork.followup = io::Followup::fork;
  for (const int64_t tokens : branches)
    fork.turns.push_back(ask(std::ssize(fork.turns), tokens, 10).turns.front());
  return fork;
}

/// Lets a request begin with all its slots on each of the instances `on`, and starts its turn.
inline schedule::ActiveSequence& begin(schedule::SchedulerState& state, batch::Request request,
                                       const std::vector<int>& on = {0}) {
  schedule::Slots slots(state.limits.ring_size), none(state.limits.ring_size);
  for (const int instance : on) slots[instance] = state.needs.of_request(request);
  state.begin(state_of(std::move(request)), slots, none);
  state.start_turn(state.active.back());
  return state.active.back();
}

/// Reads the first tokens of the sequence's prompt, on the instance.
inline void read(schedule::SchedulerState& state, schedule::ActiveSequence& sequence, int64_t count,
                 int32_t instance = 0) {
  schedule::PlanItem item;
  item.rows = {sequence.id, state.map.length(sequence.id), count, parallel::PassSequence::balanced,
               0};
  item.tokens.assign(count, 7);
  state.cache(sequence, item, {{instance}, 0, parallel::AttentionExchange::pass_kv, {}});
  sequence.in_pass = 0;
  sequence.fed += count;
}

}  // namespace pecia::test
