// SPDX-License-Identifier: Apache-2.0
/// Teams that form and change from pass to pass. Passes of several teams are under way at a time and
/// end in any order, and every instance knows only what plans have told it.

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "lib/core/error.hpp"
#include "lib/schedule/elastic_urgency.hpp"
#include "tests/schedule/fake_replica.hpp"
#include "tests/schedule/random_workload.hpp"

namespace pecia::test {
namespace {

using schedule::Finished;
using schedule::NewSequence;
using schedule::Outcome;
using schedule::Plan;
using schedule::Request;
using schedule::Scheduler;
using schedule::SchedulerLimits;

/// One instance, which executes the plans of its teams.
class FakeInstance {
 public:
  FakeInstance(const SchedulerLimits& limits, int index)
      : limits_(limits), index_(index), map_(limits.ring_size) {}

  /// Throws InvalidArgument where a Worker could not execute the plan.
  Outcome execute(const Plan& plan) {
    for (const int64_t sequence : plan.removed) {
      if (!map_.contains(sequence)) continue;
      map_.remove(sequence);
      histories_.erase(sequence), turns_.erase(sequence);
    }
    for (const NewSequence& added : plan.added) {
      map_.set_state(added.sequence, added.state);
      if (added.keeps_tokens != 0) {
        PECIA_CHECK(std::ssize(added.tokens) == added.state.length, "{} tokens of {} are known",
                    added.tokens.size(), added.state.length);
        histories_[added.sequence] = added.tokens;
      }
    }
    PECIA_CHECK(map_.total_reserved(index_) <= limits_.kv_tokens, "{} slots reserved of {}",
                map_.total_reserved(index_), limits_.kv_tokens);
    for (const auto& turn : plan.turns) turns_[turn.sequence] = turn;
    const std::vector<parallel::TeamPass> passes = plan.passes();
    check_teams(passes, limits_.ring_size);
    const parallel::Team& team = plan.teams.front();
    for (const parallel::PassSequence& rows : passes.front().rows)
      map_.append(rows, team, passes.front().placement(rows.sequence));
    Outcome outcome;
    for (size_t i = 0; i < plan.items.size(); ++i) {
      const schedule::PlanItem& item = plan.items[i];
      const auto kept = histories_.find(item.rows.sequence);
      if (kept != histories_.end())
        kept->second.insert(kept->second.end(), item.tokens.begin(), item.tokens.end());
    }
    return outcome;
  }

  bool has_turn(int64_t sequence) const { return turns_.contains(sequence); }
  const schedule::TurnStart& turn(int64_t sequence) const { return turns_.at(sequence); }
  const std::vector<int32_t>* history(int64_t sequence) const {
    const auto found = histories_.find(sequence);
    return found == histories_.end() ? nullptr : &found->second;
  }

 private:
  const SchedulerLimits& limits_;
  int index_;
  parallel::KvMap map_;
  std::map<int64_t, std::vector<int32_t>> histories_;
  std::map<int64_t, schedule::TurnStart> turns_;
};

/// All instances. They know the tokens of every sequence, as a model would by its keys.
class FakeInstances {
 public:
  explicit FakeInstances(const SchedulerLimits& limits) : limits_(limits) {
    for (int index = 0; index < limits.ring_size; ++index) instances_.emplace_back(limits_, index);
  }

  std::vector<Outcome> execute(const Plan& plan) {
    for (const NewSequence& added : plan.added)
      if (!tokens_.contains(added.sequence))
        tokens_[added.sequence] = added.state.parent == NewSequence::no_parent
                                      ? std::vector<int32_t>()
                                      : tokens_.at(added.state.parent);
    PECIA_CHECK(plan.teams.size() == 1 && !plan.items.empty(), "{} teams", plan.teams.size());
    const parallel::Team& team = plan.teams.front();
    std::vector<Outcome> outcomes;
    for (const int32_t instance : team.instances)
      outcomes.push_back(instances_.at(instance).execute(plan));
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
    for (size_t i = 0; i < plan.items.size(); ++i) {
      const schedule::PlanItem& item = plan.items[i];
      if (item.sampled_index < 0) continue;
      const auto& tokens = tokens_.at(item.rows.sequence);
      const int index = owner(item, item.rows.first + item.rows.count - 1);
      const FakeInstance& master = instances_.at(team.instances[index]);
      PECIA_CHECK(master.has_turn(item.rows.sequence), "instance {} does not know the turn", index);
      const schedule::TurnStart& turn = master.turn(item.rows.sequence);
      PECIA_CHECK(turn.answer_begin + item.sampled_index == std::ssize(tokens) &&
                      item.prompt_end == turn.answer_begin,
                  "token {} of an answer from {} on is sampled after {}", item.sampled_index,
                  turn.answer_begin, tokens.size());
      if (turn.params.repetition_penalty != 1.0f) {
        const auto* history = master.history(item.rows.sequence);
        PECIA_CHECK(history != nullptr && *history == tokens, "a master does not know the tokens");
        ++penalized;
      }
      schedule::LogProbs& found = outcomes[index].sampled;
      found.tokens.push_back(next_token(tokens, turn.random_key));
      append(found, i, tokens, found.tokens.back(), limits_.logprobs, limits_.vocab);
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

  int penalized = 0;

 private:
  const SchedulerLimits& limits_;
  std::vector<FakeInstance> instances_;
  std::map<int64_t, std::vector<int32_t>> tokens_;
};

/// Runs the requests to their end. A pass that is under way ends when the draw says so.
struct ServedByTeams {
  std::map<int64_t, Finished> rows;
  int64_t passes = 0, side_by_side = 0, wide = 0, with_holders = 0, penalized = 0, scale_ups = 0;
};

double busiest_rows(const Plan& plan) {
  const auto [prompts, answers] = busiest_work(plan);
  return prompts.rows + answers.rows;
}

ServedByTeams serve_by_teams(const SchedulerLimits& limits, const std::vector<Request>& requests,
                             Draw& draw) {
  Scheduler scheduler(limits);
  FakeInstances instances(limits);
  ServedByTeams served;
  std::vector<Plan> under_way;
  std::set<int32_t> busy;
  size_t added = 0;
  for (double now = 0;;) {
    while (added < requests.size() && (under_way.empty() || !draw.one_in(3)))
      scheduler.add(requests[added++], now);
    while (auto plan = scheduler.next(now)) {
      ++served.passes;
      PECIA_CHECK(served.passes < 20000, "{} passes and no end", served.passes);
      const parallel::Team& team = plan->teams.front();
      for (const int32_t instance : team.instances)
        PECIA_CHECK(busy.insert(instance).second, "instance {} is in a pass already", instance);
      served.side_by_side += under_way.empty() ? 0 : 1;
      served.wide += team.workers() > 1 ? 1 : 0;
      served.with_holders += team.holders > 0 ? 1 : 0;
      under_way.push_back(std::move(*plan));
    }
    for (Finished& finished : scheduler.take_finished()) {
      const int64_t row = finished.row;
      PECIA_CHECK(served.rows.emplace(row, std::move(finished)).second, "row {} twice", row);
    }
    if (under_way.empty() && added == requests.size()) break;
    if (under_way.empty()) continue;
    const auto ended = under_way.begin() + draw(0, std::ssize(under_way) - 1);
    for (const int32_t instance : ended->teams.front().instances) busy.erase(instance);
    now += 1e-3 * busiest_rows(*ended);
    scheduler.commit(*ended, instances.execute(*ended), now);
    under_way.erase(ended);
  }
  EXPECT_EQ(scheduler.running() + scheduler.waiting() + scheduler.num_under_way(), 0);
  served.penalized = instances.penalized;
  served.scale_ups = scheduler.scale_ups();
  return served;
}

/// A millisecond for each pass and each row.
schedule::TeamTimes even_times(int instances, double message_s = 1e-5, double pass_s = 1e-3) {
  const schedule::PassTimes times{schedule::RateFit({pass_s, 1e-3, 1e-9}),
                                  schedule::RateFit({pass_s, 1e-3, 1e-9})};
  return {times, schedule::TeamCosts{message_s, 1e9, 1, 1, 10}, instances};
}

TEST(SchedulerTeams, AnswerWhatEachRequestAsksWhateverEndsFirst) {
  constexpr uint64_t seed = 20261123;
  RecordProperty("seed", std::to_string(seed));
  ServedByTeams all;
  for (uint64_t attempt = 0; attempt < 300; ++attempt) {
    SCOPED_TRACE(fmt::format("attempt {}", attempt));
    Draw draw(seed + attempt);
    std::vector<Request> requests = random_requests(draw);
    for (Request& request : requests)
      for (schedule::Turn& turn : request.turns)
        if (draw.one_in(4)) turn.params.repetition_penalty = 1.1f;
    SchedulerLimits limits = random_limits(draw, requests);
    limits.elastic = true;
    if (!draw.one_in(3)) limits.team_times = even_times(limits.ring_size, 1e-6, 1e-5);
    if (limits.team_times && draw.one_in(2)) limits.objective = job::Objective::ttft;
    limits.kv_tokens = 0;
    const Scheduler counting(limits);
    int64_t most = 0;
    for (const Request& request : requests) most = std::max(most, counting.tokens_needed(request));
    limits.kv_tokens =
        (most + limits.ring_size - 1) / limits.ring_size + draw(0, 1) * draw(0, most);
    const ServedByTeams served = serve_by_teams(limits, requests, draw);
    expect_same(served.rows, expected(limits, requests));
    if (testing::Test::HasFailure()) return;
    all.side_by_side += served.side_by_side;
    all.wide += served.wide;
    all.with_holders += served.with_holders;
    all.penalized += served.penalized;
  }
  EXPECT_GT(all.side_by_side, 1000);
  EXPECT_GT(all.wide, 1000);
  EXPECT_GT(all.with_holders, 1000);
  EXPECT_GT(all.penalized, 1000);
}

SchedulerLimits teams_of(int instances, int64_t kv_tokens) {
  SchedulerLimits limits;
  limits.ring_size = instances;
  limits.elastic = true;
  limits.kv_tokens = kv_tokens;
  limits.max_sequences = 64;
  limits.max_batch_tokens = 16;
  limits.max_positions = 1000;
  limits.vocab = 100;
  return limits;
}

TEST(SchedulerTeams, GiveShortRequestsAnInstanceEach) {
  Scheduler scheduler(teams_of(3, 100));
  for (int64_t row = 0; row < 3; ++row) scheduler.add(ask(row, 10, 4), 0);
  std::set<std::vector<int32_t>> teams;
  while (const auto plan = scheduler.next(0)) teams.insert(plan->teams.front().instances);
  EXPECT_EQ(teams, (std::set<std::vector<int32_t>>{{0}, {1}, {2}}));
  EXPECT_EQ(scheduler.num_under_way(), 3);
}

TEST(SchedulerTeams, HoldARequestThatFitsOnlyInAllInstancesTogether) {
  const SchedulerLimits limits = teams_of(3, 100);
  Draw draw(1);
  const std::vector<Request> requests{ask(0, 290, 10), ask(1, 290, 11)};
  const ServedByTeams served = serve_by_teams(limits, requests, draw);
  EXPECT_EQ(served.rows.at(0).state, io::TurnState::done);
  EXPECT_EQ(served.rows.at(0).result.mode, "elastic:3");
  EXPECT_EQ(served.rows.at(1).result.error,
            "needs 301 KV slots on all ranks together, there are 300: raise kv.memory or use more "
            "ranks (cp), then --retry-failed; a narrower kv.dtype needs another output folder");
}

TEST(SchedulerTeams, LetIdleInstancesHelpToReadTheLastPrompt) {
  SchedulerLimits limits = teams_of(4, 1000);
  limits.max_batch_tokens = 100;
  Scheduler scheduler(limits);
  FakeInstances instances(limits);
  scheduler.add(ask(0, 700, 3), 0);
  // All four read it, 400 tokens in a pass, and one instance keeps it all.
  for (const int64_t tokens : {400, 300}) {
    const auto plan = scheduler.next(0);
    ASSERT_TRUE(plan);
    EXPECT_FALSE(scheduler.next(0));
    EXPECT_EQ(plan->teams.front().workers(), 4);
    EXPECT_EQ(plan->items.front().rows.count, tokens);
    EXPECT_EQ(plan->items.front().kept, (std::vector<parallel::KeptShare>{{0, tokens}}));
    scheduler.commit(*plan, instances.execute(*plan), 1);
  }
  const auto decode = scheduler.next(2);
  ASSERT_TRUE(decode);
  EXPECT_EQ(decode->teams.front().instances, (std::vector<int32_t>{0}));
  // While it decodes, another prompt has three to itself.
  scheduler.add(ask(1, 700, 3), 2);
  const auto other = scheduler.next(2);
  ASSERT_TRUE(other);
  EXPECT_EQ(other->teams.front().workers(), 3);
}

TEST(SchedulerTeams, HelpOnlyWhereItPays) {
  SchedulerLimits limits = teams_of(4, 1000);
  limits.max_batch_tokens = 1000;
  for (const auto& [message_s, workers] : {std::pair(1e-4, 4), {1e-1, 1}}) {
    limits.team_times = even_times(4, message_s);
    Scheduler scheduler(limits);
    scheduler.add(ask(0, 700, 3), 0);
    const auto plan = scheduler.next(0);
    ASSERT_TRUE(plan);
    EXPECT_EQ(plan->teams.front().workers(), workers) << message_s << " s";
    const auto& choice = scheduler.team_choice();
    ASSERT_TRUE(choice);
    EXPECT_EQ(choice->tokens, 700);
    EXPECT_EQ(choice->candidates, 4);
    EXPECT_EQ(choice->chosen.degree, workers);
    EXPECT_NEAR(choice->chosen.holders_s, 1e-3 + 700 * 1e-3, 1e-3);
    EXPECT_EQ(choice->chosen.seconds<choice->chosen.holders_s, workers> 1);
  }
}

TEST(SchedulerTeams, TakeRequestsAsTheyGetOn) {
  const SchedulerLimits limits = teams_of(2, 1000);
  Scheduler scheduler(limits);
  FakeInstances instances(limits);
  for (int64_t row = 0; row < 6; ++row) scheduler.add(ask(row, 16, 0), 0);
  // A pass has one of them. Instance 0 reads four while instance 1 reads its first.
  std::vector<Plan> first;
  while (auto plan = scheduler.next(0)) first.push_back(std::move(*plan));
  ASSERT_EQ(first.size(), 2u);
  const bool zero_first = first[0].teams.front().instances[0] == 0;
  Plan fast = std::move(first[zero_first ? 0 : 1]);
  for (int reads = 1; reads < 5; ++reads) {
    scheduler.commit(fast, instances.execute(fast), reads);
    auto next = scheduler.next(reads);
    ASSERT_TRUE(next);
    EXPECT_EQ(next->teams.front().instances, (std::vector<int32_t>{0}));
    fast = std::move(*next);
  }
  EXPECT_EQ(scheduler.waiting(), 0);
}

/// Chains with answers of very different lengths, so that some instances run out of work.
TEST(SchedulerTeams, AnswerTheSameWhereTheyGrow) {
  constexpr uint64_t seed = 20261124;
  RecordProperty("seed", std::to_string(seed));
  int64_t scale_ups = 0;
  for (uint64_t attempt = 0; attempt < 200; ++attempt) {
    SCOPED_TRACE(fmt::format("attempt {}", attempt));
    Draw draw(seed + attempt);
    std::vector<Request> requests;
    for (int64_t row = 0, count = draw(4, 16); row < count;) {
      Request& request = requests.emplace_back(ask(row++, draw(1, 40), draw.one_in(3) ? 60 : 3));
      request.turns.front().params.repetition_penalty = draw.one_in(4) ? 1.1f : 1.0f;
      if (draw.one_in(3)) request.turns.push_back(ask(row++, draw(1, 20), 20).turns.front());
    }
    SchedulerLimits limits = teams_of(static_cast<int>(draw(2, 4)), 500);
    limits.max_instances = static_cast<int>(draw(1, limits.ring_size));
    limits.team_times = even_times(limits.ring_size, 1e-6, 1e-5);
    if (draw.one_in(2)) limits.objective = job::Objective::ttft;
    const ServedByTeams served = serve_by_teams(limits, requests, draw);
    expect_same(served.rows, expected(limits, requests));
    if (testing::Test::HasFailure()) return;
    EXPECT_TRUE(limits.max_instances > 1 || served.scale_ups == 0);
    scale_ups += served.scale_ups;
  }
  EXPECT_GT(scale_ups, 50);
}

/// One instance has five long answers. The other one reads a prompt that leaves no room for them, and
/// then has nothing to do.
TEST(SchedulerTeams, GrowWhereAnInstanceHasNothingToDo) {
  for (const auto& [message_s, degree] : {std::pair(1e-6, 2), {1e-2, 1}}) {
    SCOPED_TRACE(message_s);
    SchedulerLimits limits = teams_of(2, 300);
    limits.max_batch_tokens = 100;
    limits.team_times = even_times(2, message_s, 1e-5);
    Scheduler scheduler(limits);
    FakeInstances instances(limits);
    scheduler.add(ask(0, 250, 1), 0);
    for (int64_t row = 1; row < 6; ++row) scheduler.add(ask(row, 10, 50), 0);
    std::deque<Plan> under_way;
    std::vector<Plan> of_answers;
    double now = 0;
    for (;;) {
      while (auto plan = scheduler.next(now)) under_way.push_back(std::move(*plan));
      if (under_way.empty()) break;
      const Plan plan = std::move(under_way.front());
      under_way.pop_front();
      now += 1e-3 * busiest_rows(plan);
      scheduler.commit(plan, instances.execute(plan), now);
      if (plan.items.front().rows.count == 1) of_answers.push_back(plan);
    }
    EXPECT_EQ(scheduler.take_finished().size(), 6u);
    EXPECT_EQ(scheduler.scale_ups(), degree > 1 ? 1 : 0);
    ASSERT_EQ(of_answers.size(), 49u);
    EXPECT_EQ(of_answers.front().teams.front().size(), 1);
    const Plan& last = of_answers.back();
    EXPECT_EQ(last.teams.front().workers(), degree);
    std::map<int32_t, int> rows;
    for (const auto& item : last.items) ++rows[item.rows.owner];
    EXPECT_EQ(rows[0], degree > 1 ? 3 : 5);
    EXPECT_TRUE(scheduler.has_room_for(ask(6, 299, 1))) << "all slots are free again";
  }
}

/// Where a row costs little beside a pass, one instance computes all rows.
TEST(SchedulerTeams, HaveAsManyMastersAsPay) {
  for (const auto& [row_s, masters] : {std::pair(1e-3, 3), {1e-6, 1}}) {
    SCOPED_TRACE(row_s);
    SchedulerLimits limits = teams_of(3, 1000);
    limits.min_instances = 3;
    limits.max_batch_tokens = 100;
    const schedule::PassTimes times{schedule::RateFit({1e-3, 1e-3, 1e-9}),
                                    schedule::RateFit({1e-3, row_s, 1e-9})};
    limits.team_times.emplace(times, schedule::TeamCosts{1e-6, 1e12, 1, 1, 1}, 3);
    Scheduler scheduler(limits);
    FakeInstances instances(limits);
    for (int64_t row = 0; row < 6; ++row) scheduler.add(ask(row, 30, 4), 0);
    std::optional<Plan> plan = scheduler.next(0);
    while (plan && plan->items.front().rows.owner == parallel::PassSequence::balanced) {
      scheduler.commit(*plan, instances.execute(*plan), 0);
      plan = scheduler.next(0);
    }
    ASSERT_TRUE(plan);
    EXPECT_EQ(plan->items.size(), 6u);
    EXPECT_EQ(plan->teams.front().workers(), masters);
    EXPECT_EQ(plan->teams.front().size(), 3) << "the others hold keys";
  }
}

SchedulerLimits one_instance() {
  SchedulerLimits limits = teams_of(1, 2000);
  limits.objective = job::Objective::ttft;
  limits.team_times = even_times(1);
  limits.max_batch_tokens = 100;
  return limits;
}

struct LeastWaiting : testing::Test {
  SchedulerLimits limits = one_instance();
  Scheduler scheduler{limits};
  FakeInstances instances{limits};

  /// The row whose pass comes next, and how many tokens it takes. The pass is then done.
  std::pair<int64_t, int64_t> next(double now) {
    const auto plan = scheduler.next(now);
    if (!plan) return {-1, 0};
    EXPECT_EQ(plan->items.size(), 1u);
    const auto& rows = plan->items.front().rows;
    scheduler.commit(*plan, instances.execute(*plan), now);
    return {rows.sequence, rows.count};
  }
};

using Pass = std::pair<int64_t, int64_t>;

TEST_F(LeastWaiting, AShortRequestOvertakesALongOneBetweenTwoChunks) {
  scheduler.add(ask(0, 800, 4), 0);
  EXPECT_EQ(next(0), Pass(0, 100));
  scheduler.add(ask(1, 20, 3), 0.1);
  EXPECT_TRUE(scheduler.has_room_for(ask(2, 20, 3)));
  EXPECT_EQ(next(0.1), Pass(1, 20)) << "its prompt";
  for (int token = 1; token < 3; ++token) EXPECT_EQ(next(0.1), Pass(1, 1)) << "its answer";
  EXPECT_EQ(next(0.1), Pass(0, 100)) << "the long one goes on where it was";
}

TEST_F(LeastWaiting, ALongAnswerWaitsForAShortPrompt) {
  scheduler.add(ask(0, 20, 300), 0);
  EXPECT_EQ(next(0), Pass(0, 20));
  EXPECT_EQ(next(0), Pass(0, 1));
  scheduler.add(ask(1, 30, 1), 0);
  EXPECT_EQ(next(0), Pass(1, 30));
  EXPECT_EQ(next(0), Pass(0, 1));
}

/// Else a service with many short answers under way would let every prompt wait.
TEST_F(LeastWaiting, AShortPromptWaitsForNoAnswers) {
  for (int64_t row = 0; row < 5; ++row) scheduler.add(ask(row, 10, 6), 0);
  const auto step = [&](double now) {
    const std::optional<Plan> plan = scheduler.next(now);
    if (!plan) return false;
    scheduler.commit(*plan, instances.execute(*plan), now);
    return plan->items.front().rows.owner == parallel::PassSequence::balanced;
  };
  EXPECT_TRUE(step(0));
  EXPECT_FALSE(step(0));
  scheduler.add(ask(5, 90, 1), 0.01);
  EXPECT_TRUE(step(0.01))
      << "five answers would wait 0.09 s each, and it would wait less than 0.1 s";
}

/// Beside a stream of short requests that would take all the time. Reading the long prompt takes
/// 0.8 s alone, so it is due after 20 s, and each of the others 2.5 s after it came.
TEST_F(LeastWaiting, NoRequestWaitsForEver) {
  scheduler.add(ask(0, 800, 1), 0);
  EXPECT_EQ(next(0), Pass(0, 100));
  double ended_s = 0;
  for (int64_t row = 1; row < 300 && ended_s == 0; ++row) {
    const double now = 0.1 * static_cast<double>(row);
    scheduler.add(ask(row, 100, 1), now);
    next(now);
    for (const Finished& finished : scheduler.take_finished())
      if (finished.row == 0) ended_s = now;
  }
  EXPECT_GT(ended_s, 17);
  EXPECT_LT(ended_s, 20);
}

TEST_F(LeastWaiting, SlotsAreLeftToTheRequestThatIsDueFirst) {
  scheduler.add(ask(0, 990, 1), 0);
  EXPECT_EQ(next(0), Pass(0, 100));
  scheduler.add(ask(1, 990, 60), 0);  // needs 1050 of the 1009 slots that are left
  EXPECT_FALSE(scheduler.has_room_for(ask(2, 10, 1)));
  scheduler.add(ask(2, 10, 1), 30);  // due after the other
  EXPECT_EQ(next(30), Pass(0, 100));
  EXPECT_EQ(scheduler.waiting(), 2);
}

TEST(Urgency, TheLesserSumOfWaitsDecides) {
  using schedule::answers_come_first;
  EXPECT_FALSE(answers_come_first({.prompt_s = 0.2, .answers = 1, .answers_s = 2}));
  EXPECT_TRUE(answers_come_first({.prompt_s = 30, .answers = 1, .answers_s = 2}));
  EXPECT_TRUE(answers_come_first({.prompt_s = 3, .answers = 8, .answers_s = 20}));
  EXPECT_FALSE(answers_come_first({.prompt_s = 3, .answers = 0, .answers_s = 0}));
  EXPECT_FALSE(answers_come_first({.prompt_s = 2, .answers = 1, .answers_s = 2}));
  EXPECT_DOUBLE_EQ(schedule::due_s(10, 2), 60);
}

}  // namespace
}  // namespace pecia::test
