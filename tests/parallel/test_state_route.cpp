// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "lib/base/core/error.hpp"
#include "lib/ranks/parallel/state_route.hpp"
#include "tests/parallel/one_team.hpp"
#include "tests/support/random_teams.hpp"

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
  const std::vector<StateEnds> ends{{StateStep::nowhere, 0}, {0, 1}, {0, 0}};
  const StateRounds rounds = state_rounds(pass, team_of_all(2), ends);
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

TEST(StateRoute, GoesOnToWhoKeepsKeys) {
  const std::vector<PassSequence> pass{{1, 30, 1, 1}};
  const StateRounds rounds = state_rounds(pass, team_of_all(3), std::vector<StateEnds>{{0, 2}});
  ASSERT_EQ(rounds.size(), 2u);
  EXPECT_EQ(rounds[1][0].segment, (Segment{2, {31, 31}})) << "without rows";
  EXPECT_EQ(rounds[1][0].from, 1);
  EXPECT_TRUE(rounds[1][0].travels());
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
    std::vector<StateEnds> ends;
    std::vector<int64_t> next;
    std::vector<int> last;
    for (const PassSequence& rows : pass) {
      const auto from = static_cast<int>(draw(0, ranks - 1)),
                 to = static_cast<int>(draw(0, ranks - 1));
      ends.push_back({rows.first == 0 ? StateStep::nowhere : from, to});
      next.push_back(rows.first), last.push_back(ends.back().from);
    }
    for (const auto& round : state_rounds(pass, team_of_all(ranks), ends))
      for (const StateStep& step : round) {
        EXPECT_EQ(step.from, last[step.sequence]);
        EXPECT_EQ(step.segment.rows.begin, next[step.sequence]);
        next[step.sequence] = step.segment.rows.end;
        last[step.sequence] = step.segment.rank;
      }
    for (size_t i = 0; i < pass.size(); ++i) {
      EXPECT_EQ(next[i], pass[i].first + pass[i].count) << "sequence " << i;
      EXPECT_EQ(last[i], ends[i].to) << "sequence " << i;
    }
  }
}

TEST(StateRoute, GroupsOfHeadsHaveTheirKeyHeads) {
  EXPECT_TRUE(may_group(32, 16, 1) && may_group(32, 16, 4) && may_group(32, 16, 32));
  EXPECT_FALSE(may_group(32, 16, 3) || may_group(6, 2, 3) || may_group(32, 16, 64));
  EXPECT_TRUE(may_group(128, 1, 8) && may_group(6, 2, 6));
  EXPECT_EQ(head_group(32, 16, 4, 3), (HeadGroup{24, 8, 12, 4}));
  EXPECT_EQ(head_group(32, 16, 32, 5), (HeadGroup{5, 1, 2, 1}));
  EXPECT_EQ(head_group(128, 1, 8, 2), (HeadGroup{32, 16, 0, 1}));
  EXPECT_THROW(head_group(32, 16, 3, 0), InvalidArgument);
}

StateRounds balanced_rounds(int ranks, int64_t rows) {
  const std::vector<PassSequence> pass{{1, 0, rows}};
  return state_rounds(pass, team_of_all(ranks), std::vector<StateEnds>{{StateStep::nowhere, 0}});
}

TEST(StateRoute, WalksInGroups) {
  using Steps = std::vector<WalkStep>;
  EXPECT_THAT(walk_order(balanced_rounds(2, 40), 2),
              ElementsAre(Steps{{0, 0}}, Steps{{1, 0}}, Steps{{0, 1}}, Steps{{1, 1}, {2, 0}},
                          Steps{{2, 1}}));
  EXPECT_THAT(walk_order(balanced_rounds(2, 40), 1),
              ElementsAre(Steps{{0, 0}}, Steps{{1, 0}}, Steps{{2, 0}}));
}

/// When each step has ended, if ranks do theirs in this order, wait for the state, and need a second
/// for `rows_of_second` rows.
double walk_seconds(const StateRounds& rounds, int groups, double rows_of_second) {
  std::map<int, double> free;
  std::map<int, double> arrived;  // by group
  double last = 0;
  for (const auto& steps : walk_order(rounds, groups))
    for (const WalkStep& step : steps)
      for (const StateStep& each : rounds[step.round]) {
        double& rank = free[each.segment.rank];
        double& state = arrived[step.group];
        rank = state = std::max(rank, state) +
                       static_cast<double>(each.segment.rows.size()) / rows_of_second / groups;
        last = std::max(last, rank);
      }
  return last;
}

/// T/N · (1 + (N − 1)/G) for a way of T = 1 s, whatever G; and 1 s with one group.
TEST(StateRoute, EndsInTheLeastTimeThatGroupsCanReach) {
  for (const int ranks : {1, 2, 3, 5, 8})
    for (const int groups : {1, 2, 3, 8, 16}) {
      constexpr int64_t rows = 2 * 2 * 3 * 5 * 8;
      const double expected =
          ranks == 1 ? 1.0 : std::min(1.0, (1.0 + double(ranks - 1) / groups) / ranks);
      EXPECT_NEAR(walk_seconds(balanced_rounds(ranks, rows), groups, rows), expected,
                  groups == 1 ? 1e-9 : 0.5 / (groups * ranks))
          << ranks << " ranks, " << groups << " groups";
    }
}

/// Every step once; a rank that does its steps in this order finds what it needs done before.
TEST(StateRoute, WalksThroughEachRoundBeforeTheNext) {
  std::mt19937 random(7);
  const auto draw = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  for (int trial = 0; trial < 300; ++trial) {
    const auto ranks = static_cast<int>(draw(1, 6)), groups = static_cast<int>(draw(1, 5));
    std::vector<PassSequence> pass;
    std::vector<StateEnds> ends;
    for (int64_t count = draw(1, 4); count > 0; --count) {
      pass.push_back({count, draw(0, 40), draw(1, 90),
                      draw(0, 1) == 0 ? PassSequence::balanced : PassSequence::contiguous});
      ends.push_back({StateStep::nowhere, static_cast<int>(draw(0, ranks - 1))});
    }
    const StateRounds rounds = state_rounds(pass, team_of_all(ranks), ends);
    std::map<int, int> next;  // round by group
    for (const auto& steps : walk_order(rounds, groups)) {
      std::map<int, int> seen;
      for (const WalkStep& step : steps) {
        EXPECT_EQ(step.round, next[step.group]++);
        EXPECT_EQ(seen[step.group]++, 0) << "twice at once";
      }
    }
    for (int group = 0; group < groups; ++group) EXPECT_EQ(next[group], std::ssize(rounds));
  }
}

TEST(StateRoute, ChoosesGroupsByWhatTheyGain) {
  const StateRounds rounds = balanced_rounds(4, 4096);
  const WalkCosts costs{1e-6, 4, 20e-6};
  EXPECT_EQ(head_groups(balanced_rounds(1, 4096), 32, 16, costs), 1) << "nobody waits";
  EXPECT_EQ(head_groups(rounds, 32, 16, {0, 1, 20e-6}), 1) << "nothing is known";
  EXPECT_EQ(head_groups(rounds, 32, 16, {1e-6, 64, 20e-6}), 1)
      << "a row takes as long with fewer heads";
  EXPECT_EQ(head_groups(rounds, 32, 16, costs), 8) << "smaller groups would not be faster";
  EXPECT_EQ(head_groups(rounds, 32, 16, {1e-6, 4, 1}), 1) << "messages take too long";
  EXPECT_EQ(head_groups(rounds, 32, 16, {1e-6, 1, 1e-9}), 32);
}

TEST(StateRoute, BeginsWhereTheLastTokenWasComputed) {
  OneTeamMap map(2);
  map.add(7, 20);
  EXPECT_EQ(state_origin(map, {7, 0, 8}).instance, StateStep::nowhere);
  map.append({7, 0, 8});
  EXPECT_EQ(map.state_holder(7), 0);
  map.append({7, 8, 1, 1});
  EXPECT_EQ(map.state_holder(7), 1);
  map.KvMap::add(9, {10, 10}, 7);
  const StateOrigin of_parent = state_origin(map, {9, 9, 1, 0});
  EXPECT_EQ(of_parent.instance, 1);
  EXPECT_EQ(of_parent.sequence, 7);
  map.append({9, 9, 1, 0});
  const StateOrigin own = state_origin(map, {9, 10, 1, 0});
  EXPECT_EQ(own.instance, 0);
  EXPECT_EQ(own.sequence, 9);
}

TEST(StateRoute, LeavesAnInstanceWithTheKeys) {
  KvMap map(3);
  map.add(7, {20, 20, 20});
  const Team team = team_of_all(3);
  const auto append = [&](const PassSequence& rows, std::vector<KeptShare> shares,
                          uint8_t gathers) {
    const Placement placement{7, std::move(shares), gathers};
    map.append(rows, team, &placement);
    return map.state_holder(7);
  };
  EXPECT_EQ(append({7, 0, 6, 0}, {{1, 2}, {2, 4}}, 0), 2) << "the computing one keeps no keys";
  EXPECT_EQ(append({7, 6, 1, 1}, {{2, 1}}, 0), 1) << "it has keys of earlier passes";
  EXPECT_EQ(append({7, 7, 1, 1}, {{0, 8}}, 1), 0) << "all keys leave the others";
  EXPECT_NO_THROW(map.verify());
}

/// Whatever teams did before, the next one has the state: nothing ever comes from outside of it. Each
/// state that is followed on its way has gone through all rows of its sequence, in their order.
TEST(StateRoute, EndsWhereTheNextTeamFindsIt) {
  constexpr uint64_t seed = 20261130;
  int moved = 0, empty = 0;  // without rows; ranks of teams without any
  for (uint64_t attempt = 0; attempt < 60; ++attempt) {
    const auto instances = static_cast<int>(1 + attempt % 6);
    test::RandomTeams random(instances, seed + attempt);
    KvMap map(instances);
    const std::vector<int64_t> reserved(instances, 200);
    std::vector<SequenceId> sequences{1, 2, 4};
    for (const SequenceId sequence : sequences) map.add(sequence, reserved);
    std::map<std::pair<int32_t, SequenceId>, int64_t> states;  // (instance, sequence) → tokens
    for (int round = 0; round < 8; ++round) {
      if (round == 4) map.add(3, reserved, 1), sequences = {2, 3, 4};  // 1 grows no more
      std::vector<TeamPass> teams = random.draw(map, sequences);
      random.keep_some(map, teams);
      for (const TeamPass& each : teams) {
        std::vector<StateOrigin> origins;
        for (const PassSequence& rows : each.rows) origins.push_back(state_origin(map, rows));
        std::vector<StateEnds> ends;
        for (size_t i = 0; i < each.rows.size(); ++i) {
          const PassSequence& rows = each.rows[i];
          map.append(rows, each.team, each.placement(rows.sequence));
          const auto to = each.team.index_of(map.state_holder(rows.sequence));
          ASSERT_TRUE(to);
          ends.push_back({StateStep::nowhere, *to});
          if (rows.first == 0) continue;
          const auto from = each.team.index_of(origins[i].instance);
          ASSERT_TRUE(from) << "sequence " << rows.sequence;
          ends.back().from = *from;
          ASSERT_EQ(states.at({origins[i].instance, origins[i].sequence}), rows.first);
        }
        for (const auto& steps : state_rounds(each.rows, each.team, ends))
          for (const StateStep& step : steps) {
            const PassSequence& rows = each.rows[step.sequence];
            const int32_t here = each.team.instances[step.segment.rank];
            if (step.travels() && step.segment.rows.begin > rows.first) {
              const auto left = states.extract({each.team.instances[step.from], rows.sequence});
              ASSERT_EQ(left.mapped(), step.segment.rows.begin);
            }
            states[{here, rows.sequence}] = step.segment.rows.end;
            moved += step.segment.rows.size() == 0;
          }
        for (int rank = 0; rank < each.team.size(); ++rank)
          empty += num_rows(each.rows, each.team, rank) == 0;
        // Sequences that a pass has gathered may grow on all instances again.
        for (const PassSequence& rows : each.rows)
          for (int instance = 0; instance < instances; ++instance)
            map.set_reserved(rows.sequence, instance, 200);
      }
      ASSERT_NO_THROW(map.verify());
    }
  }
  EXPECT_GT(moved, 30);
  EXPECT_GT(empty, 30);
}

}  // namespace
}  // namespace pecia::parallel
