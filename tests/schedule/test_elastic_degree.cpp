// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/base/core/error.hpp"
#include "lib/engine/schedule/elastic_degree.hpp"

namespace pecia::schedule {
namespace {

/// A pass costs as much as 200 rows. A decode pass of an instance reads its weights in 10 ms.
TeamTimes machine(int degrees, double message_s = 1e-5) {
  const PassTimes alone{RateFit({2e-2, 1e-4, 1e-9}), RateFit({1e-2, 1e-4, 1e-9})};
  return TeamTimes(alone, {message_s, 1e9, 2e4, 3e4, 10}, degrees);
}

std::vector<Reader> idle(size_t count) {
  return std::vector<Reader>(count);
}

TEST(ReadingDegree, IsTheOneWithTheLeastTime) {
  for (const double message_s : {1e-6, 1e-4, 1e-3, 1e-1}) {
    const TeamTimes times = machine(8, message_s);
    for (const int64_t tokens : {100, 5000, 100000})
      for (const int holders : {1, 3}) {
        const ChosenDegree found = reading_degree(times, {.cached = 1000,
                                                          .tokens = tokens,
                                                          .holders = holders,
                                                          .others = idle(8 - holders),
                                                          .rows_per_instance = 4096});
        EXPECT_DOUBLE_EQ(found.holders_s, times.prefill_s(holders, 1000, tokens, holders * 4096));
        for (int degree = holders; degree <= 8; ++degree) {
          const double seconds = times.prefill_s(degree, 1000, tokens, degree * 4096);
          EXPECT_LE(found.seconds, seconds);
          if (degree == found.degree) {
            EXPECT_DOUBLE_EQ(found.seconds, seconds);
          } else if (degree < found.degree) {
            EXPECT_LT(found.seconds, seconds) << "fewer would do";
          }
        }
      }
  }
}

TEST(ReadingDegree, GrowsWithThePromptAndFallsWithTheMessages) {
  const auto degree = [](int64_t tokens, double message_s) {
    return reading_degree(machine(8, message_s),
                          {.tokens = tokens, .others = idle(7), .rows_per_instance = 4096})
        .degree;
  };
  EXPECT_GE(degree(100000, 1e-6), 7);
  EXPECT_EQ(degree(100, 1e-2), 1);
  EXPECT_LT(degree(1000, 1e-3), 8);
  EXPECT_GT(degree(1000, 1e-3), 1);
}

TEST(ReadingDegree, LetsAnswersWaitWhereThatIsTheLesserSum) {
  const TeamTimes times = machine(2, 1e-6);
  const auto degree = [&](int64_t waiting, Reader other) {
    return reading_degree(
               times,
               {.tokens = 4000, .others = {other}, .waiting = waiting, .rows_per_instance = 4096})
        .degree;
  };
  // Two read it in a little more than half of 0.4 s.
  EXPECT_EQ(degree(1, {}), 2);
  EXPECT_EQ(degree(1, {.answers = 1}), 1) << "two wait for 0.2 s, or one for 0.4 s";
  EXPECT_EQ(degree(4, {.answers = 1}), 2) << "five wait for 0.2 s, or four for 0.4 s";
  EXPECT_EQ(degree(4, {.answers = 4}), 1);
  EXPECT_EQ(degree(4, {.answers = 1, .ready_s = 0.05}), 2);
  EXPECT_EQ(degree(4, {.answers = 1, .ready_s = 0.2}), 1) << "it comes when the half is read";
}

TEST(ReadingDegree, RefusesMoreInstancesThanTimesAreKnownOf) {
  EXPECT_THROW(reading_degree(machine(2), {.others = idle(2)}), InvalidArgument);
  EXPECT_THROW(reading_degree(machine(4), {.holders = 0}), InvalidArgument);
}

TEST(Masters, AreOneForAFewRowsAndMoreForMany) {
  const TeamTimes times = machine(8);
  EXPECT_EQ(masters(times, 8, 1, 1000).count, 1);
  EXPECT_EQ(masters(times, 8, 0, 0).count, 1);
  // A row takes 0.31 ms on 8 instances, the fixed part of a pass 10.2 ms.
  const Masters many = masters(times, 8, 512, 100000);
  EXPECT_GE(many.count, 7);
  EXPECT_LE(many.seconds, 1.02 * many.most_s);
  EXPECT_GT(many.one_s, 5 * many.seconds);
  for (int64_t rows = 1; rows < 40; ++rows) {
    const Masters few = masters(times, 4, rows, 1000);
    EXPECT_LE(few.count, rows);
    EXPECT_LE(few.seconds, 1.02 * few.most_s);
    if (few.count == 1) continue;
    EXPECT_GT(times.decode_s(4, few.count - 1, rows, 1000), 1.02 * few.most_s) << "fewer would do";
  }
}

/// All rows of an answer are on one master.
TEST(Masters, AreAtMostTheAnswers) {
  const TeamTimes times = machine(8);
  EXPECT_GE(masters(times, 8, 512, 100000).count, 7);
  const Masters two = masters(times, 8, 512, 100000, 2);
  EXPECT_EQ(two.count, 2);
  EXPECT_DOUBLE_EQ(two.seconds, times.decode_s(8, 2, 512, 100000));
  EXPECT_EQ(two.most_s, two.seconds);
  EXPECT_EQ(grown_team(times, 1, 4, 400, 100000).degree, 4);
  EXPECT_EQ(grown_team(times, 1, 4, 400, 100000, 2).masters, 2);
  EXPECT_EQ(grown_team(times, 1, 4, 400, 100000, 1).degree, 1) << "nobody could share the rows";
}

TEST(GrownTeam, GrowsWhereRowsCostMoreThanMessages) {
  const TeamTimes times = machine(4);
  // A pass takes 10 ms and a row 0.1 ms.
  EXPECT_EQ(grown_team(times, 1, 4, 20, 1000).degree, 1) << "less than a quarter is gained";
  const GrownTeam grown = grown_team(times, 1, 4, 400, 100000);
  EXPECT_EQ(grown.degree, 4);
  EXPECT_EQ(grown.masters, 4);
  EXPECT_DOUBLE_EQ(grown.seconds, times.seconds(4, PassKind::decode, {1, 100, 100000}));
  EXPECT_DOUBLE_EQ(grown.before_s, times.decode_s(1, 1, 400, 100000));
  EXPECT_EQ(grown_team(times, 1, 2, 400, 100000).degree, 2);
  EXPECT_EQ(grown_team(times, 1, 4, 1, 100'000'000).degree, 1) << "its keys stay where they are";
  EXPECT_EQ(grown_team(machine(4, 1e-1), 1, 4, 400, 100000).degree, 1) << "slow messages";
  EXPECT_EQ(grown_team(times, 3, 3, 400, 100000).degree, 3) << "nobody else is there";
  EXPECT_THROW(grown_team(times, 3, 2, 1, 1), InvalidArgument);
  EXPECT_THROW(grown_team(times, 1, 5, 1, 1), InvalidArgument);
}

TEST(AnsweringDegree, KeepsAllReadersWhereTheContextCostsMost) {
  const TeamTimes times = machine(4);
  // A pass takes 10 ms, and a million pairs 1 ms.
  EXPECT_EQ(answering_degree(times, 1, 4, {.context = 1'000'000}).degree, 1) << "a tenth at most";
  const ChosenDegree all = answering_degree(
      times, 1, 4, {.context = 8'000'000, .others = 3, .other_context = 2'000'000});
  EXPECT_EQ(all.degree, 4);
  EXPECT_DOUBLE_EQ(all.seconds, times.seconds(4, PassKind::decode, {1, 1, 4e6}));
  EXPECT_DOUBLE_EQ(all.holders_s, times.decode_s(1, 1, 4, 10'000'000));
  const AnswersAhead others{.context = 1000, .others = 3, .other_context = 9'999'000};
  EXPECT_EQ(answering_degree(times, 1, 4, others).degree, 1) << "their keys stay where they are";
  EXPECT_EQ(answering_degree(machine(4, 1e-1), 1, 4, {.context = 8'000'000}).degree, 1);
  EXPECT_EQ(answering_degree(times, 4, 4, {.context = 8'000'000}).degree, 4);
  EXPECT_THROW(answering_degree(times, 3, 2, {}), InvalidArgument);
}

}  // namespace
}  // namespace pecia::schedule
