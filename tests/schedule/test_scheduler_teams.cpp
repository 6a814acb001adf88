// SPDX-License-Identifier: Apache-2.0
/// Teams that form and change from pass to pass. Passes of several teams are under way at a time and
/// end in any order.

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "lib/base/core/error.hpp"
#include "tests/schedule/fake_replica.hpp"
#include "tests/schedule/fake_teams.hpp"
#include "tests/schedule/random_workload.hpp"
#include "tests/schedule/served_by_teams.hpp"

namespace pecia::test {
namespace {

using batch::Finished;
using batch::Request;
using schedule::NewSequence;
using schedule::Outcome;
using schedule::Plan;
using schedule::Scheduler;
using schedule::SchedulerLimits;

TEST(SchedulerTeams, AnswerWhatEachRequestAsksWhateverEndsFirst) {
  constexpr uint64_t seed = 20261123;
  RecordProperty("seed", std::to_string(seed));
  ServedByTeams all;
  for (uint64_t attempt = 0; attempt < 300; ++attempt) {
    SCOPED_TRACE(fmt::format("attempt {}", attempt));
    Draw draw(seed + attempt);
    std::vector<Request> requests = random_requests(draw);
    for (Request& request : requests)
      for (batch::Turn& turn : request.turns)
        if (draw.one_in(4)) turn.params.repetition_penalty = 1.1f;
    SchedulerLimits limits = random_teams(draw, requests);
    limits.on_demand = false;
    limits.has_states = attempt % 2 == 1;
    if (limits.ring_size > 1 && draw.one_in(3)) set_apart(limits, draw);
    const int64_t least = least_slots(limits, requests);
    limits.kv_tokens = least + draw(0, 1) * draw(0, least * limits.ring_size);
    const ServedByTeams served = serve_by_teams(limits, requests, draw);
    expect_same(served.rows, expected(limits, requests));
    if (testing::Test::HasFailure()) return;
    all.side_by_side += served.side_by_side;
    all.wide += served.wide;
    all.with_holders += served.with_holders;
    all.penalized += served.penalized;
    all.copies += served.copies;
  }
  EXPECT_GT(all.copies, 300);
  EXPECT_GT(all.side_by_side, 1000);
  EXPECT_GT(all.wide, 1000);
  EXPECT_GT(all.with_holders, 1000);
  EXPECT_GT(all.penalized, 1000);
}

/// Lengths, memories and yields are drawn: with memory on demand, too, every answer is right, and
/// everything ends.
TEST(SchedulerTeams, AnswerWithMemoryOnDemand) {
  constexpr uint64_t seed = 20261130;
  RecordProperty("seed", std::to_string(seed));
  schedule::DemandCounts all, apart;
  int64_t returned = 0, copies = 0;
  for (uint64_t attempt = 0; attempt < 600; ++attempt) {
    SCOPED_TRACE(fmt::format("attempt {}", attempt));
    Draw draw(seed + attempt);
    std::vector<Request> requests = random_requests(draw);
    for (Request& request : requests)
      for (batch::Turn& turn : request.turns)
        if (draw.one_in(4)) turn.params.repetition_penalty = 1.1f;
    SchedulerLimits limits = random_teams(draw, requests);
    limits.on_demand = true;
    limits.has_states = attempt % 2 == 1;
    if (limits.has_states) limits.state_tokens = 3;
    limits.max_sequences = draw.of<int64_t>({2, 5, 64});
    limits.max_instances = draw.of<int>({1, 2, 1 << 20});
    if (limits.ring_size > 1 && draw.one_in(3)) set_apart(limits, draw);
    const int64_t least = least_slots(limits, requests);
    limits.kv_tokens = least + draw(0, 1) * draw(0, least);
    const ServedByTeams served = serve_by_teams(limits, requests, draw);
    expect_same(served.rows, expected(limits, requests));
    if (testing::Test::HasFailure()) return;
    (limits.apart() ? apart : all) += served.demand;
    returned += served.returned, copies += served.copies;
  }
  EXPECT_GT(apart.parked, 100);
  EXPECT_GT(apart.forgotten, 100);
  EXPECT_GT(apart.blocks, 300);
  EXPECT_GT(copies, 300);
  EXPECT_GT(all.parked, 300);
  EXPECT_GT(all.forgotten, 300);
  EXPECT_GT(all.scale_ups, 300);
  EXPECT_GT(all.blocks, 1000);
  EXPECT_GT(returned, 100);
}

/// Where messages are slow, instances that are full send keys to those that have room.
TEST(SchedulerTeams, MoveKeysToInstancesWithRoom) {
  constexpr uint64_t seed = 20261201;
  RecordProperty("seed", std::to_string(seed));
  schedule::DemandCounts all;
  for (uint64_t attempt = 0; attempt < 100; ++attempt) {
    SCOPED_TRACE(fmt::format("attempt {}", attempt));
    Draw draw(seed + attempt);
    SchedulerLimits limits = teams_of(draw.of<int>({2, 3, 5}), 120);
    limits.team_times = even_times(limits.ring_size, 1e-3, 1e-5);
    limits.on_demand = true;
    limits.block = draw.of<int64_t>({1, 4, 16});
    limits.max_instances = draw.of<int>({2, 1 << 20});
    limits.parking_s = 1e-3;
    if (draw.one_in(2)) limits.scheduler = job::TeamScheduler::loongserve;
    if (draw.one_in(2)) limits.objective = job::Objective::ttft;
    if (draw.one_in(4)) limits.forced_yields = draw(0, 1 << 20);
    std::vector<Request> requests;
    for (int64_t row = 0; row < 20; ++row) {
      requests.push_back(ask(row, draw(2, 20), static_cast<int32_t>(draw(2, 80))));
      if (draw.one_in(2)) requests.back().turns.front().params.repetition_penalty = 1.1f;
    }
    const ServedByTeams served = serve_by_teams(limits, requests, draw);
    expect_same(served.rows, expected(limits, requests));
    if (testing::Test::HasFailure()) return;
    all += served.demand;
  }
  EXPECT_GT(all.moved, 300);
  EXPECT_GT(all.moved_tokens, 10 * all.moved);
}

/// Requests that lie on several instances, since others left them little room, leave one of them when
/// these have ended and a prompt comes.
TEST(SchedulerTeams, LetAnswersLeaveInstancesThatReadPrompts) {
  constexpr uint64_t seed = 20261129;
  RecordProperty("seed", std::to_string(seed));
  int64_t shrinks = 0;
  for (uint64_t attempt = 0; attempt < 200; ++attempt) {
    SCOPED_TRACE(fmt::format("attempt {}", attempt));
    Draw draw(seed + attempt);
    SchedulerLimits limits = teams_of(6, 200);
    limits.team_times = even_times(6, 1e-6, 1e-5);
    limits.objective = job::Objective::ttft;
    limits.scheduler = job::TeamScheduler::loongserve;
    limits.parts.grows = limits.parts.interrupts = draw.one_in(2);
    std::vector<Request> requests;
    for (int64_t row = 0; row < 20; ++row)
      requests.push_back(ask(row, draw.one_in(3) ? draw(150, 300) : draw(5, 60),
                             static_cast<int32_t>(draw(5, 100))));
    const ServedByTeams served = serve_by_teams(limits, requests, draw);
    expect_same(served.rows, expected(limits, requests));
    if (testing::Test::HasFailure()) return;
    shrinks += served.shrinks;
  }
  EXPECT_GT(shrinks, 20);
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
    ASSERT_EQ(scheduler.decisions().size(), workers > 1 ? 2u : 1u);
    const schedule::Decision& choice = scheduler.decisions().front();
    EXPECT_STREQ(choice.name, "elastic_readers");
    EXPECT_STREQ(choice.chosen, workers > 1 ? "joined" : "alone");
    std::map<std::string, double> numbers(choice.numbers.begin(), choice.numbers.end());
    EXPECT_EQ(numbers["tokens"], 700);
    EXPECT_EQ(numbers["candidates"], 4);
    EXPECT_EQ(numbers["instances"], workers);
    EXPECT_NEAR(numbers["alone_s"], 1e-3 + 700 * 1e-3, 1e-3);
    EXPECT_EQ(numbers["seconds"]<numbers["alone_s"], workers> 1);
  }
}

/// All instances keep a prompt that they have read, where its answer is made sooner together and
/// nothing else is there that they could do.
TEST(SchedulerTeams, StayTogetherForAnAnswerWhereItPays) {
  for (const bool other_waits : {false, true})
    for (const auto& [pair_s, holders] : {std::pair(1e-4, other_waits ? 1 : 4), {1e-9, 1}}) {
      SCOPED_TRACE(fmt::format("{} s a pair, another waits: {}", pair_s, other_waits));
      SchedulerLimits limits = teams_of(4, 1000);
      limits.max_batch_tokens = 100;
      const schedule::PassTimes times{schedule::RateFit({1e-3, 1e-3, 1e-9}),
                                      schedule::RateFit({1e-3, 1e-3, pair_s})};
      limits.team_times.emplace(times, schedule::TeamCosts{1e-6, 1e12, 1, 1, 1}, 4);
      Scheduler scheduler(limits);
      FakeInstances instances(limits);
      scheduler.add(ask(0, 700, 3), 0);
      std::optional<Plan> plan = scheduler.next(0);
      ASSERT_TRUE(plan);
      EXPECT_EQ(plan->teams.front().workers(), 4);
      const std::vector<parallel::KeptShare> first = plan->items.front().kept;
      if (pair_s < 1e-6)
        EXPECT_EQ(first, (std::vector<parallel::KeptShare>{{0, 400}}));
      else
        EXPECT_EQ(first.size(), 4u);
      if (other_waits) scheduler.add(ask(1, 600, 3), 0);
      std::vector<size_t> answering;  // instances
      for (int pass = 0; plan; ++pass) {
        if (plan->items.front().rows.count == 1 && plan->items.front().rows.sequence == 0)
          answering.push_back(plan->teams.front().instances.size());
        scheduler.commit(*plan, instances.execute(*plan), pass);
        plan = scheduler.next(pass);
      }
      EXPECT_EQ(scheduler.take_finished().size(), other_waits ? 2u : 1u);
      ASSERT_EQ(answering.size(), 2u);
      EXPECT_EQ(answering.front(), static_cast<size_t>(holders));
    }
}

/// A long prompt's pass ends when the other instance will have read what it has; it is never much
/// longer than a short one then.
TEST(SchedulerTeams, EndAPassWhenOthersCanHelp) {
  for (const auto& [waiting, tokens] : {std::pair(0, 300), {2, 512}, {8, 1000}}) {
    SCOPED_TRACE(waiting);
    SchedulerLimits limits = teams_of(2, 10000);
    limits.max_batch_tokens = 1000;
    limits.max_positions = 10000;
    limits.team_times = even_times(2, 1e-6);
    Scheduler scheduler(limits);
    for (const int64_t length : {300, 5000}) scheduler.add(ask(length, length, 0), 0);
    for (int row = 0; row < waiting; ++row) scheduler.add(ask(row, 300, 0), 0);
    const auto other = scheduler.next(0), plan = scheduler.next(0);
    ASSERT_TRUE(other && plan);
    EXPECT_EQ(other->items.front().rows.count, 300);
    EXPECT_NEAR(static_cast<double>(plan->items.front().rows.count), tokens, 10);
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
  int64_t scale_ups = 0, gathered = 0;
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
    if (draw.one_in(3)) limits.tbt_s = draw.of<double>({1e-3, 1, 1.5});
    const ServedByTeams served = serve_by_teams(limits, requests, draw);
    expect_same(served.rows, expected(limits, requests));
    if (testing::Test::HasFailure()) return;
    EXPECT_TRUE(limits.max_instances > 1 || served.scale_ups == 0);
    scale_ups += served.scale_ups;
    gathered += served.gathered;
  }
  EXPECT_GT(scale_ups, 50);
  EXPECT_GT(gathered, 10) << "the next prompt of a chain brings its keys together again";
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

}  // namespace
}  // namespace pecia::test
