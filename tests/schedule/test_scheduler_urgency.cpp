// SPDX-License-Identifier: Apache-2.0
/// The order of passes where the waits of requests count: objective ttft.

#include <gtest/gtest.h>

#include <optional>
#include <utility>

#include "lib/engine/schedule/elastic_urgency.hpp"
#include "tests/schedule/fake_replica.hpp"
#include "tests/schedule/fake_teams.hpp"
#include "tests/schedule/random_workload.hpp"

namespace pecia::test {
namespace {

using batch::Finished;
using schedule::Plan;
using schedule::Scheduler;
using schedule::SchedulerLimits;

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

/// Instance 0 has one answer, instance 1 has two and then gets a long prompt.
TEST(LongPrompt, IsReadByInstancesWhoseAnswersAreFewer) {
  SchedulerLimits limits = teams_of(2, 4000);
  limits.objective = job::Objective::ttft;
  limits.team_times = even_times(2);
  limits.max_batch_tokens = 200;
  limits.max_positions = 10000;
  Scheduler scheduler(limits);
  FakeInstances instances(limits);
  scheduler.add(ask(0, 10, 3000), 0);
  for (const int64_t row : {1, 2}) scheduler.add(ask(row, 10, 1100), 0);
  const auto begin = [&] { return scheduler.next(0).value(); };
  const auto end = [&](const Plan& plan) { scheduler.commit(plan, instances.execute(plan), 0); };
  for (int round = 0; round < 4; ++round) {
    const Plan one = begin(), other = begin();
    end(one), end(other);
  }
  Plan of_0 = begin(), of_1 = begin();
  if (of_0.teams.front().instances.front() == 1) std::swap(of_0, of_1);
  end(of_1);
  scheduler.add(ask(3, 1500, 1), 0);
  EXPECT_FALSE(scheduler.next(0)) << "the prompt waits until instance 0 can help";
  EXPECT_EQ(scheduler.waiting(), 0);
  end(of_0);
  const Plan together = begin();
  EXPECT_EQ(together.teams.front().instances, (std::vector<int32_t>{1, 0}));
  EXPECT_EQ(together.items.front().rows.sequence, 3);
  ASSERT_EQ(together.items.front().kept.size(), 1u);
  EXPECT_EQ(together.items.front().kept[0],
            (parallel::KeptShare{1, together.items.front().rows.count}));
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
