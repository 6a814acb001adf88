// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "lib/base/core/error.hpp"
#include "lib/engine/schedule/team_times.hpp"
#include "tests/schedule/random_workload.hpp"

namespace pecia::schedule {
namespace {

PassTimes one_instance() {
  return {RateFit({2e-2, 1e-4, 4e-8}), RateFit({1e-2, 2e-4, 5e-9})};
}
constexpr TeamCosts costs{1e-5, 1e9, 2e4, 3e4, 10};

TEST(ExpectedRates, AreThoseComputedByHand) {
  const PassRates prefill = expected_rates({2e-2, 1e-4, 4e-8}, costs, 4, PassKind::prefill);
  EXPECT_DOUBLE_EQ(prefill.pass_s, 2e-2 + 10 * 3 * 1e-5);
  EXPECT_DOUBLE_EQ(prefill.row_s, 1e-4 + 3 * 2e-5);
  EXPECT_DOUBLE_EQ(prefill.pair_s, 4e-8);
  const PassRates decode = expected_rates({1e-2, 2e-4, 5e-9}, costs, 4, PassKind::decode);
  EXPECT_DOUBLE_EQ(decode.pass_s, 1e-2 + 10 * 2 * 1e-5);
  EXPECT_DOUBLE_EQ(decode.row_s, 2e-4 + 3 * 3e-5);
  EXPECT_DOUBLE_EQ(decode.pair_s, 5e-9);
}

TEST(ExpectedRates, HaveAStateGoThroughThePassesOfPrompts) {
  TeamCosts recurrent = costs;
  recurrent.state_bytes = 5e6;
  const PassRates of{2e-2, 1e-4, 4e-8};
  EXPECT_DOUBLE_EQ(expected_rates(of, recurrent, 4, PassKind::prefill).pass_s,
                   expected_rates(of, costs, 4, PassKind::prefill).pass_s + 6 * 5e-3);
  EXPECT_EQ(expected_rates(of, recurrent, 4, PassKind::decode).pass_s,
            expected_rates(of, costs, 4, PassKind::decode).pass_s);
  EXPECT_DOUBLE_EQ(TeamTimes(one_instance(), recurrent, 2).state_s(), 5e-3);
  recurrent.state_bytes = -1;
  EXPECT_THROW(TeamTimes(one_instance(), recurrent, 2), InvalidArgument);
}

TEST(ExpectedRates, OfOneInstanceHaveNothingAdded) {
  const PassRates alone = expected_rates({2e-2, 1e-4, 0}, costs, 1, PassKind::prefill);
  EXPECT_EQ(alone.pass_s, 2e-2);
  EXPECT_EQ(alone.row_s, 1e-4);
  EXPECT_EQ(alone.pair_s, 0);
}

TEST(BusiestPrefill, IsTheHeadersExample) {
  const PassWork work = busiest_prefill(3, 0, 10, 8);
  EXPECT_EQ(work.passes, 2);
  EXPECT_EQ(work.rows, 3 + 1);
  EXPECT_DOUBLE_EQ(work.pairs, 36 * 3 / 8.0 + (9 + 10) / 2.0);
}

TEST(BusiestPrefill, OfOneInstanceIsAllWork) {
  for (const int64_t tokens : {0, 1, 63, 64, 65, 200}) {
    const PassWork all = work_of(100, static_cast<double>(tokens), 64);
    const PassWork busiest = busiest_prefill(1, 100, tokens, 64);
    EXPECT_EQ(busiest.passes, all.passes);
    EXPECT_EQ(busiest.rows, all.rows);
    EXPECT_NEAR(busiest.pairs, all.pairs, 1e-9 * all.pairs);
  }
}

TEST(TeamTimes, BeginsWithTheExpectedRates) {
  const TeamTimes times(one_instance(), costs, 8);
  for (int degree = 1; degree <= 8; ++degree)
    for (const PassKind kind : {PassKind::prefill, PassKind::decode}) {
      EXPECT_FALSE(times.measured(degree, kind));
      const PassRates alone =
          kind == PassKind::prefill ? PassRates{2e-2, 1e-4, 4e-8} : PassRates{1e-2, 2e-4, 5e-9};
      const PassRates expected = expected_rates(alone, costs, degree, kind);
      EXPECT_DOUBLE_EQ(times.seconds(degree, kind, {1, 10, 1000}),
                       expected.pass_s + 10 * expected.row_s + 1000 * expected.pair_s);
    }
}

TEST(TeamTimes, PredictsPromptsAndDecodePassesByHand) {
  const TeamTimes times(one_instance(), costs, 4);
  // The keys of the first 50 tokens travel in the second pass.
  EXPECT_NEAR(times.prefill_s(2, 0, 100, 50),
              2 * (2e-2 + 10 * 1e-5) + 50 * (1e-4 + 2e-5) + 2525 * 4e-8 + 50 * 2e-5, 1e-12);
  EXPECT_NEAR(times.decode_s(4, 2, 7, 8000),
              1e-2 + 10 * 2 * 1e-5 + 4 * (2e-4 + 3 * 3e-5) + 2000 * 5e-9, 1e-12);
}

/// Its keys cannot have travelled for longer than that.
TEST(TeamTimes, LearnThatLinksAreFaster) {
  TeamTimes times(one_instance(), costs, 2);
  const PassWork work = busiest_prefill(2, 40000, 100, 100);
  const double said_s = times.travel_s(2, 40000);
  EXPECT_GT(said_s, 0.5);
  times.add(2, PassKind::prefill, work, 0.5);
  EXPECT_NEAR(times.travel_s(2, 40000), 0.5, 1e-9);
  times.add(2, PassKind::prefill, work, 0.7);
  EXPECT_NEAR(times.travel_s(2, 40000), 0.5, 1e-9);
  EXPECT_EQ(times.travel_s(1, 40000), 0);
}

/// Passes of one length do not tell what takes their time; the links are known.
TEST(TeamTimes, DoNotTakeTravelForWork) {
  TeamTimes times(one_instance(), costs, 2);
  const PassWork few = busiest_prefill(2, 40000, 64, 64),
                 more = busiest_prefill(2, 40000, 256, 256);
  const double before_s = times.seconds(2, PassKind::prefill, more);
  for (int pass = 0; pass < 20; ++pass)
    times.add(2, PassKind::prefill, few, times.seconds(2, PassKind::prefill, few));
  EXPECT_NEAR(times.seconds(2, PassKind::prefill, more), before_s, 0.1 * before_s);
}

/// What a degree does on an invented machine.
PassRates truth(int degree, PassKind kind) {
  const double others = degree - 1;
  if (kind == PassKind::prefill) return {3e-2 + 4e-3 * others, 2e-4 + 1e-5 * others, 2e-8};
  return {1.5e-2 + 2e-3 * others, 1e-4 + 3e-5 * others, 1e-8};
}

double seconds_by(const PassRates& rates, const PassWork& work) {
  return work.passes * rates.pass_s + work.rows * rates.row_s + work.pairs * rates.pair_s;
}

PassWork draw_pass(test::Draw& draw, int degree, PassKind kind) {
  if (kind == PassKind::prefill)
    return busiest_prefill(degree, draw(0, 60000), draw(64, 4096), 4096);
  const int64_t rows = draw(1, 64);
  return {1, static_cast<double>(rows), static_cast<double>(rows * draw(100, 60000)) / degree};
}

TEST(TeamTimes, LearnsEachDegreeFromNoisyPasses) {
  constexpr uint64_t seed = 20261123;
  RecordProperty("seed", std::to_string(seed));
  test::Draw draw(seed);
  TeamTimes times(one_instance(), costs, 8);
  for (const PassKind kind : {PassKind::prefill, PassKind::decode})
    for (const int degree : {1, 2, 4}) {
      const auto links_s = [&](const PassWork& work) {
        return kind == PassKind::prefill ? times.travel_s(degree, work.cached) : 0;
      };
      for (int pass = 0; pass < 100; ++pass) {
        const PassWork work = draw_pass(draw, degree, kind);
        const double noise = 1 + 0.05 * static_cast<double>(draw(-100, 100)) / 100;
        times.add(degree, kind, work,
                  noise * seconds_by(truth(degree, kind), work) + links_s(work));
      }
      EXPECT_TRUE(times.measured(degree, kind));
      for (int point = 0; point < 50; ++point) {
        const PassWork work = draw_pass(draw, degree, kind);
        const double expected = seconds_by(truth(degree, kind), work) + links_s(work);
        EXPECT_NEAR(times.seconds(degree, kind, work), expected, 0.1 * expected)
            << "degree " << degree << ", " << work.rows << " rows, " << work.pairs << " pairs";
      }
    }
}

TEST(TeamTimes, KeepsWhatIsExpectedOfADegreeThatWasNotMeasured) {
  TeamTimes times(one_instance(), costs, 8);
  const PassWork work{1, 500, 1e6};
  const double before = times.seconds(8, PassKind::prefill, work);
  for (int pass = 0; pass < 20; ++pass) {
    times.add(2, PassKind::prefill, work, 1);
    times.add(8, PassKind::decode, work, 1);
  }
  EXPECT_FALSE(times.measured(8, PassKind::prefill));
  EXPECT_EQ(times.seconds(8, PassKind::prefill, work), before);
}

/// Otherwise teams would look fast on a machine whose single instances turned out slow.
TEST(TeamTimes, ExpectsOfOtherDegreesWhatFollowsFromTheMeasuredInstance) {
  TeamTimes times(one_instance(), costs, 8);
  const PassWork work{1, 500, 1e6};
  const double alone = times.seconds(1, PassKind::prefill, work);
  for (int pass = 0; pass < 50; ++pass) times.add(1, PassKind::prefill, work, 3 * alone);
  const PassRates expected =
      expected_rates(times.rates(1, PassKind::prefill), costs, 8, PassKind::prefill);
  EXPECT_DOUBLE_EQ(times.seconds(8, PassKind::prefill, work), seconds_by(expected, work));
  EXPECT_GT(times.seconds(8, PassKind::prefill, work), 2.9 * alone);
}

/// Else a slow link would look good for the rest of a prompt of which one instance has the beginning.
TEST(TeamTimes, CountKeysThatTravelLongerThanAttentionTakes) {
  TeamCosts hiding = costs;
  hiding.hides_keys = true;
  TeamTimes times(one_instance(), hiding, 2);
  // The keys of 4000 tokens travel for 80 ms; attention of 100 rows to them takes 16 ms.
  const PassWork work = busiest_prefill(2, 4000, 200, 200);
  EXPECT_EQ(work.cached, 4000);
  const PassRates rates = times.rates(2, PassKind::prefill);
  EXPECT_DOUBLE_EQ(times.seconds(2, PassKind::prefill, work),
                   rates.pass_s + 100 * rates.row_s + 8e-2);
  EXPECT_EQ(times.seconds(1, PassKind::prefill, work),
            seconds_by(times.rates(1, PassKind::prefill), work));
  const PassWork hidden = busiest_prefill(2, 4000, 2000, 2000);
  EXPECT_DOUBLE_EQ(times.seconds(2, PassKind::prefill, hidden), seconds_by(rates, hidden));
  EXPECT_DOUBLE_EQ(TeamTimes(one_instance(), costs, 2).seconds(2, PassKind::prefill, hidden),
                   seconds_by(rates, hidden) + 8e-2);
  const PassWork three = busiest_prefill(2, 100, 250, 100);
  EXPECT_EQ(three.cached, 100 + 200 + 300);
  times.add(2, PassKind::prefill, work, 0.5);
  EXPECT_DOUBLE_EQ(times.seconds(2, PassKind::prefill, work),
                   seconds_by(times.rates(2, PassKind::prefill), work));
}

/// A fit to short prompts alone can leave no time for pairs.
TEST(TeamTimes, LearnsARateThatOneInstanceHasNone) {
  PassTimes alone = one_instance();
  for (int pass = 0; pass < 60; ++pass) {
    alone.prefill.add({1, 100, 1e6}, 1e-2);
    alone.prefill.add({1, 200, 1e3}, 5e-2);
  }
  TeamTimes times(alone, costs, 2);
  const PassWork work{1, 100, 1e6};
  for (int pass = 0; pass < 50; ++pass) times.add(2, PassKind::prefill, work, 0.5);
  EXPECT_NEAR(times.seconds(2, PassKind::prefill, work), 0.5, 0.01);
}

TEST(TeamTimes, RefusesWhatIsNoPass) {
  EXPECT_THROW(TeamTimes(one_instance(), costs, 0), InvalidArgument);
  EXPECT_THROW(TeamTimes(one_instance(), TeamCosts{}, 2), InvalidArgument) << "no bandwidth";
  TeamTimes times(one_instance(), costs, 2);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(times.add(3, PassKind::prefill, {1, 1, 1}, 1), InvalidArgument);
  EXPECT_THROW(times.add(1, PassKind::prefill, {0, 1, 1}, 1), InvalidArgument);
  EXPECT_THROW(times.add(1, PassKind::prefill, {1, 1, nan}, 1), InvalidArgument);
  EXPECT_THROW(times.add(1, PassKind::prefill, {1, 1, 1}, nan), InvalidArgument);
  EXPECT_THROW(times.seconds(0, PassKind::decode, {1, 1, 1}), InvalidArgument);
  EXPECT_THROW(times.decode_s(2, 3, 1, 1), InvalidArgument) << "more masters than instances";
  EXPECT_THROW(times.prefill_s(1, 0, 10, 0), InvalidArgument);
}

}  // namespace
}  // namespace pecia::schedule
