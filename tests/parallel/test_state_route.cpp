// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "lib/base/core/error.hpp"
#include "lib/ranks/parallel/state_route.hpp"
#include "tests/parallel/one_team.hpp"

namespace pecia::parallel {
namespace {

using testing::ElementsAre;

TEST(StateRoute, GoesThroughAPassInTheOrderOfPositions) {
  const Team two = team_of_all(2);
  EXPECT_THAT(segments_of({1, 10, 8}, two),
              ElementsAre(Segment{0, {10, 12}}, Segment{1, {12, 16}}, Segment{0, {16, 18}}))
      << "the last ring place has two neighbours";
  EXPECT_THAT(segments_of({1, 10, 5, PassSequence::contiguous}, two),
              ElementsAre(Segment{0, {10, 12}}, Segment{1, {12, 15}}));
  EXPECT_THAT(segments_of({1, 10, 1, 1}, two), ElementsAre(Segment{1, {10, 11}}));
  EXPECT_THAT(segments_of({1, 10, 8}, team_of_all(1)), ElementsAre(Segment{0, {10, 18}}));
}

TEST(StateRoute, TravelsOnlyBetweenRanks) {
  const std::vector<PassSequence> pass{{1, 0, 8}, {2, 30, 1, 1}, {3, 30, 1, 0}};
  const auto holder = [](const PassSequence& rows) {
    return rows.first == 0 ? StateStep::nowhere : 0;
  };
  const StateRounds rounds = state_rounds(pass, team_of_all(2), holder);
  ASSERT_EQ(rounds.size(), 3u);
  ASSERT_EQ(rounds[0].size(), 3u);
  EXPECT_FALSE(rounds[0][0].travels()) << "it begins";
  EXPECT_TRUE(rounds[0][1].travels()) << "it is on rank 0, and the row on rank 1";
  EXPECT_FALSE(rounds[0][2].travels());
  ASSERT_EQ(rounds[1].size(), 1u);
  EXPECT_EQ(rounds[1][0].from, 0);
  EXPECT_EQ(rounds[1][0].segment.rank, 1);
  ASSERT_EQ(rounds[2].size(), 1u);
  EXPECT_EQ(rounds[2][0].from, 1);
  EXPECT_EQ(rounds[2][0].segment.rank, 0);
}

/// Each sequence's steps, one after the other, are its rows from the first to the last, and each takes
/// the state from where the one before has left it.
TEST(StateRoute, IsAChainThroughAllRowsWhateverTheirCut) {
  std::mt19937 random(3);
  const auto draw = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  for (int trial = 0; trial < 500; ++trial) {
    const auto ranks = static_cast<int>(draw(1, 6));
    std::vector<PassSequence> pass;
    for (int64_t count = draw(1, 5); count > 0; --count) {
      const int32_t owners[]{PassSequence::balanced, PassSequence::contiguous,
                             static_cast<int32_t>(draw(0, ranks - 1))};
      pass.push_back({count, draw(0, 40), draw(1, 30), owners[draw(0, 2)]});
    }
    const auto holder = [&](const PassSequence& rows) {
      return rows.first == 0 ? StateStep::nowhere : static_cast<int>(rows.first % ranks);
    };
    std::vector<int64_t> next;
    std::vector<int> last;
    for (const PassSequence& rows : pass) next.push_back(rows.first), last.push_back(holder(rows));
    for (const auto& round : state_rounds(pass, team_of_all(ranks), holder))
      for (const StateStep& step : round) {
        EXPECT_EQ(step.from, last[step.sequence]);
        EXPECT_EQ(step.segment.rows.begin, next[step.sequence]);
        next[step.sequence] = step.segment.rows.end;
        last[step.sequence] = step.segment.rank;
      }
    for (size_t i = 0; i < pass.size(); ++i)
      EXPECT_EQ(next[i], pass[i].first + pass[i].count) << "sequence " << i;
  }
}

TEST(StateRoute, FindsWhoHasComputedAToken) {
  OneTeamMap map(2);
  map.add(7, 20);
  map.append({7, 0, 8});
  map.append({7, 8, 1, 1});
  EXPECT_EQ(computed_at(map, 7, 7), 0);
  EXPECT_EQ(computed_at(map, 7, 8), 1);
  map.KvMap::add(9, {10, 10}, 7);
  EXPECT_EQ(computed_at(map, 9, 8), 1) << "its parent's";
  EXPECT_THROW(computed_at(map, 7, 9), InvalidArgument);
}

}  // namespace
}  // namespace pecia::parallel
