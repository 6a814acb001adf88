// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Instances whose teams change from pass to pass, without a model. Every instance knows only what
/// plans have told it.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "lib/base/core/error.hpp"
#include "lib/ranks/parallel/state_route.hpp"
#include "tests/schedule/fake_replica.hpp"

namespace pecia::test {

/// One instance, which executes the plans of its teams.
class FakeInstance {
 public:
  FakeInstance(const schedule::SchedulerLimits& limits, int index)
      : limits_(limits), index_(index), map_(limits.ring_size) {}

  /// Throws InvalidArgument where a Worker could not execute the plan.
  schedule::Outcome execute(const schedule::Plan& plan) {
    shorten(plan.shortened_at(index_));
    for (const int64_t sequence : plan.removed) forget(sequence);
    leave(plan.left);
    check_room();
    for (const auto& [sequence, reserved] : plan.returned)
      if (map_.contains(sequence) && map_.is_parked(sequence)) bring_back(sequence, reserved);
    for (const schedule::NewSequence& added : plan.added) {
      map_.set_state(added.sequence, added.state);
      if (added.keeps_tokens != 0) {
        PECIA_CHECK(std::ssize(added.tokens) == added.state.length, "{} tokens of {} are known",
                    added.tokens.size(), added.state.length);
        histories_[added.sequence] = added.tokens;
      }
      check_room();
    }
    check_room();
    for (const auto& turn : plan.turns) turns_[turn.sequence] = turn;
    const std::vector<parallel::TeamPass> passes = plan.passes();
    check_teams(passes, limits_.ring_size);
    const parallel::Team& team = plan.teams.front();
    for (const parallel::PassSequence& rows : passes.front().rows) {
      const parallel::StateOrigin origin = state_origin(map_, rows);
      map_.append(rows, team, passes.front().placement(rows.sequence));
      if (limits_.has_states) move_state(rows, origin, team);
    }
    map_.verify();
    std::erase_if(states_, [this](const auto& state) { return !goes_on_here(state.first); });
    const int64_t most = (limits_.drafts.on() ? 3 : 2) * limits_.max_sequences;
    PECIA_CHECK(std::ssize(states_) + std::ssize(kept_states_) <= most, "{} states and {} kept",
                states_.size(), kept_states_.size());
    schedule::Outcome outcome;
    for (size_t i = 0; i < plan.items.size(); ++i) {
      const schedule::PlanItem& item = plan.items[i];
      const auto kept = histories_.find(item.rows.sequence);
      if (kept != histories_.end())
        kept->second.insert(kept->second.end(), item.tokens.begin(), item.tokens.end());
    }
    return outcome;
  }

  /// Does what a rank does whose instance gets keys of others.
  void receive(const schedule::Plan& plan) {
    const schedule::Receiving& receiving = plan.receiving;
    shorten(plan.shortened_at(index_));
    leave(receiving.left);
    for (const schedule::NewSequence& added : receiving.added_at(index_))
      map_.set_state(added.sequence, added.state);
    check_room();
    for (const parallel::KeyCopy& copy : receiving.copies_to(index_)) {
      map_.append(copy.rows(), copy.team());
      if (copy.instance == index_ && copy.state_from != parallel::SequenceState::nobody)
        states_[copy.to] = copy.first + copy.count;
    }
    map_.verify();
  }

  /// Requires that the instance has what it is to send in the pass that it has executed.
  void send(const std::vector<parallel::KeyCopy>& copies) const {
    for (const parallel::KeyCopy& copy : copies) {
      if (copy.state_from == index_) check_state(copy.of, copy.first + copy.count);
      for (const parallel::KeySource& source : copy.sources) {
        if (source.instance != index_) continue;
        std::vector<parallel::StridedRange> held;
        for (const auto& run :
             held_between(map_.ranges(copy.of, index_), copy.first, copy.first + copy.count))
          held.push_back(run.positions);
        PECIA_CHECK(held == source.positions, "instance {} does not have what it is to send",
                    index_);
      }
    }
  }

  bool has_turn(int64_t sequence) const { return turns_.contains(sequence); }
  const schedule::TurnStart& turn(int64_t sequence) const { return turns_.at(sequence); }
  const std::vector<int32_t>* history(int64_t sequence) const {
    const auto found = histories_.find(sequence);
    return found == histories_.end() ? nullptr : &found->second;
  }

 private:
  void shorten(const std::vector<schedule::ShortenedSequence>& shortened) {
    for (const auto& [sequence, length] : shortened) {
      if (!map_.contains(sequence) || map_.length(sequence) <= length) continue;
      map_.shorten(sequence, length);
      go_back(sequence, length);
      if (const auto kept = histories_.find(sequence); kept != histories_.end())
        kept->second.resize(length);
    }
  }
  /// Where its state was kept, it has that again.
  void go_back(int64_t sequence, int64_t length) {
    const auto kept = kept_states_.extract(sequence);
    if (!kept) return;
    PECIA_CHECK(
        kept.mapped() == length && goes_on_here(sequence),
        "instance {} has kept the state of sequence {} after {} tokens, which goes back to {}",
        index_, sequence, kept.mapped(), length);
    states_[sequence] = length;
  }
  void leave(const std::vector<schedule::LeftInstance>& left) {
    for (const schedule::LeftInstance& of : left)
      if (of.instance == index_ && of.parks == 0) forget(of.sequence);
    for (const schedule::LeftInstance& of : left)
      if (of.instance == index_ && of.parks != 0) park(of.sequence);
  }
  void park(int64_t sequence) {
    if (goes_on_here(sequence) && states_.contains(sequence))
      parked_states_[sequence] = states_.extract(sequence).mapped();
    map_.park(sequence);
  }
  void bring_back(int64_t sequence, const std::vector<int64_t>& reserved) {
    map_.bring_back(sequence, reserved);
    if (parked_states_.contains(sequence))
      states_[sequence] = parked_states_.extract(sequence).mapped();
  }
  /// As recurrence::goes_on_here.
  bool goes_on_here(int64_t sequence) const {
    if (!map_.contains(sequence) || map_.is_parked(sequence)) return false;
    const auto parent = map_.parent(sequence);
    return map_.length(sequence) > (parent ? map_.length(*parent) : 0) &&
           map_.state_holder(sequence) == index_;
  }
  void check_state(int64_t sequence, int64_t tokens) const {
    const auto found = states_.find(sequence);
    PECIA_CHECK(found != states_.end() && found->second == tokens,
                "instance {} does not have the state of sequence {} after {} tokens", index_,
                sequence, tokens);
  }
  /// The map has the rows.
  void move_state(const parallel::PassSequence& rows, const parallel::StateOrigin& origin,
                  const parallel::Team& team) {
    if (origin.instance == parallel::StateStep::nowhere)
      PECIA_CHECK(rows.first == 0, "nobody has the state of sequence {}", rows.sequence);
    else
      PECIA_CHECK(team.index_of(origin.instance), "the state of sequence {} is outside of {}",
                  rows.sequence, team.text());
    kept_states_.erase(rows.sequence);
    if (origin.instance == index_) {
      check_state(origin.sequence, rows.first);
      if (parallel::may_be_shortened(rows) && origin.sequence == rows.sequence)
        kept_states_[rows.sequence] = rows.first;
    }
    if (map_.state_holder(rows.sequence) == index_)
      states_[rows.sequence] = rows.first + rows.count;
  }
  void forget(int64_t sequence) {
    if (!map_.contains(sequence)) return;
    map_.remove(sequence);
    histories_.erase(sequence), turns_.erase(sequence);
    states_.erase(sequence), parked_states_.erase(sequence), kept_states_.erase(sequence);
  }
  void check_room() const {
    PECIA_CHECK(map_.total_reserved(index_) <= limits_.kv_tokens, "{} slots reserved of {}",
                map_.total_reserved(index_), limits_.kv_tokens);
  }

  const schedule::SchedulerLimits& limits_;
  int index_;
  parallel::KvMap map_;
  std::map<int64_t, std::vector<int32_t>> histories_;
  std::map<int64_t, schedule::TurnStart> turns_;
  /// Tokens after which states are, by sequence; kept_states_: before rows that may be taken back.
  std::map<int64_t, int64_t> states_, parked_states_, kept_states_;
};

/// All instances. They know the tokens of every sequence, as a model would by its keys.
class FakeInstances {
 public:
  explicit FakeInstances(const schedule::SchedulerLimits& limits) : limits_(limits) {
    for (int index = 0; index < limits.ring_size; ++index) instances_.emplace_back(limits_, index);
  }

  /// Gives the plan to those that receive keys. An instance in a pass takes it after that.
  void send(const schedule::Plan& plan) {
    for (const int32_t instance : plan.teams.front().instances) deferred_[instance];
    for (const auto& [sequence, length] : plan.shortened)
      if (auto& tokens = tokens_.at(sequence); std::ssize(tokens) > length) tokens.resize(length);
    for (const parallel::KeyCopy& copy : plan.receiving.copies) {
      const auto chunk = std::ranges::find(plan.items, copy.of,
                                           [](const auto& item) { return item.rows.sequence; });
      const auto first = chunk->tokens.begin() + (copy.first - chunk->rows.first);
      tokens_[copy.to].insert(tokens_[copy.to].end(), first, first + copy.count);
      ++copies;
    }
    for (const int32_t instance : plan.receiving.instances) {
      const auto busy = deferred_.find(instance);
      if (busy == deferred_.end())
        instances_.at(instance).receive(plan);
      else
        busy->second.push_back(plan);
    }
  }

  /// Ends a pass that was sent.
  std::vector<schedule::Outcome> execute(const schedule::Plan& plan) {
    for (const schedule::NewSequence& added : plan.added) {
      if (!tokens_.contains(added.sequence))
        tokens_[added.sequence] = added.state.parent == schedule::NewSequence::no_parent
                                      ? std::vector<int32_t>()
                                      : tokens_.at(added.state.parent);
      auto& tokens = tokens_[added.sequence];  // one that was forgotten has fewer
      PECIA_CHECK(added.state.length <= std::ssize(tokens), "{} tokens of {} are known",
                  tokens.size(), added.state.length);
      tokens.resize(added.state.length);
    }
    PECIA_CHECK(plan.teams.size() == 1 && !plan.items.empty(), "{} teams", plan.teams.size());
    const parallel::Team& team = plan.teams.front();
    std::vector<schedule::Outcome> outcomes;
    for (const int32_t instance : team.instances) {
      outcomes.push_back(instances_.at(instance).execute(plan));
      instances_.at(instance).send(plan.receiving.copies);
      if (const auto deferred = deferred_.extract(instance))
        for (const schedule::Plan& receiving : deferred.mapped())
          instances_.at(instance).receive(receiving);
    }
    for (const schedule::PlanItem& item : plan.items) {
      auto& tokens = tokens_.at(item.rows.sequence);
      PECIA_CHECK(
          std::ssize(tokens) == item.rows.first && std::ssize(item.tokens) == item.rows.count,
          "{} tokens before {}", tokens.size(), item.rows.first);
      tokens.insert(tokens.end(), item.tokens.begin(), item.tokens.end());
    }
    const auto owner = [&](const schedule::PlanItem& item, int64_t position) {
      return row_owner(item.rows, team.workers(), position);
    };
    size_t sample = 0;
    for (const schedule::PlanItem& item : plan.items) {
      if (item.sampled_index < 0) continue;
      const auto& tokens = tokens_.at(item.rows.sequence);
      const int index = owner(item, item.rows.first + item.rows.count - 1);
      const FakeInstance& master = instances_.at(team.instances[index]);
      PECIA_CHECK(master.has_turn(item.rows.sequence), "instance {} does not know the turn", index);
      const schedule::TurnStart& turn = master.turn(item.rows.sequence);
      PECIA_CHECK(turn.answer_begin + item.sampled_index == item.first_sampled() + 1 &&
                      item.prompt_end == turn.answer_begin,
                  "token {} of an answer from {} on is sampled after {}", item.sampled_index,
                  turn.answer_begin, item.first_sampled() + 1);
      if (turn.params.repetition_penalty != 1.0f) {
        const auto* history = master.history(item.rows.sequence);
        PECIA_CHECK(history != nullptr && *history == tokens, "a master does not know the tokens");
        ++penalized;
      }
      schedule::LogProbs& found = outcomes[index].sampled;
      for (int64_t after = item.first_sampled(); after < std::ssize(tokens); ++after) {
        const auto before = std::span(tokens).first(after + 1);
        PECIA_CHECK(item.drafted == 0 || owner(item, after) == index, "two masters have rows");
        found.tokens.push_back(next_token(before, turn.random_key));
        append(found, sample++, before, found.tokens.back(), limits_.logprobs, limits_.vocab);
      }
    }
    for (size_t i = 0; i < plan.targets.size(); ++i) {
      const auto& target = plan.targets[i];
      const schedule::PlanItem& item = plan.items.at(target.item);
      append(outcomes[owner(item, target.position)].targets, i,
             std::span(tokens_.at(item.rows.sequence)).first(target.position + 1), target.token,
             limits_.prompt_logprobs, limits_.vocab);
    }
    return outcomes;
  }

  int penalized = 0, copies = 0;

 private:
  const schedule::SchedulerLimits& limits_;
  std::vector<FakeInstance> instances_;
  std::map<int64_t, std::vector<int32_t>> tokens_;
  /// By instance in a pass: what it has to receive after that.
  std::map<int32_t, std::vector<schedule::Plan>> deferred_;
};

/// A millisecond for each pass and each row.
inline schedule::TeamTimes even_times(int instances, double message_s = 1e-5,
                                      double pass_s = 1e-3) {
  const schedule::PassTimes times{schedule::RateFit({pass_s, 1e-3, 1e-9}),
                                  schedule::RateFit({pass_s, 1e-3, 1e-9})};
  return {times, schedule::TeamCosts{message_s, 1e9, 1, 1, 10}, instances};
}

inline schedule::SchedulerLimits teams_of(int instances, int64_t kv_tokens) {
  schedule::SchedulerLimits limits;
  limits.ring_size = instances;
  limits.elastic = true;
  limits.kv_tokens = kv_tokens;
  limits.max_sequences = 64;
  limits.max_batch_tokens = 16;
  limits.max_positions = 1000;
  limits.vocab = 100;
  return limits;
}

}  // namespace pecia::test
