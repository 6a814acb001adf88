// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "lib/base/core/error.hpp"
#include "tests/parallel/one_team.hpp"

namespace pecia::parallel {
namespace {

std::vector<int64_t> positions(const KvMap& map, SequenceId sequence, int rank) {
  std::vector<int64_t> found;
  for (const StridedRange& range : map.ranges(sequence, rank))
    for (int64_t i = 0; i < range.count; ++i) found.push_back(range.position(i));
  return found;
}

TEST(KvMap, FollowsPrefillInChunksAndDealtDecode) {
  OneTeamMap map(2);
  map.add(7, 8);

  map.append({7, 0, 8});
  map.append({7, 8, 1, 0});
  map.append({7, 9, 1, 1});
  map.append({7, 10, 1, 0});
  map.append({7, 11, 1, 1});

  EXPECT_EQ(map.length(7), 12);
  EXPECT_EQ(positions(map, 7, 0), (std::vector<int64_t>{0, 1, 6, 7, 8, 10}));
  EXPECT_EQ(positions(map, 7, 1), (std::vector<int64_t>{2, 3, 4, 5, 9, 11}));
  EXPECT_EQ(map.ranges(7, 1), (std::vector<StridedRange>{{2, 4, 1}, {9, 2, 2}}));
}

TEST(KvMap, IsShortenedOnEveryRank) {
  OneTeamMap map(2);
  map.add(7, 8);
  map.append({7, 0, 2, 0});
  map.append({7, 2, 3, 1});
  EXPECT_EQ(map.state_holder(7), 1);
  map.shorten(7, 3);
  EXPECT_EQ(map.length(7), 3);
  EXPECT_EQ(positions(map, 7, 1), (std::vector<int64_t>{2}));
  map.shorten(7, 2);
  EXPECT_EQ(map.ranges(7, 1), (std::vector<StridedRange>{}));
  EXPECT_EQ(map.state_holder(7), 0) << "rank 1 keeps nothing of it";
  map.verify();
  map.append({7, 2, 1, 1});
  EXPECT_EQ(positions(map, 7, 1), (std::vector<int64_t>{2}));
  EXPECT_THROW(map.shorten(7, 4), InvalidArgument);
}

/// Rows of another rank than the one that had the state are taken back.
TEST(KvMap, TakesTheStateBackWithTokens) {
  OneTeamMap map(3);
  map.add(7, 20);
  map.append({7, 0, 6});
  const int32_t before = map.state_holder(7);
  map.append({7, 6, 1, 1});
  map.append({7, 7, 3, 2});
  EXPECT_EQ(map.state_holder(7), 2);
  map.shorten(7, 7);
  EXPECT_EQ(map.state_holder(7), 1);
  map.shorten(7, 6);
  EXPECT_EQ(map.state_holder(7), before);
  map.verify();
}

/// A prompt's last rows are computed by instance 0, and instance 1 keeps its last tokens.
TEST(KvMap, TakesTheStateBackToWhereItWasAndNotToTheLastKey) {
  KvMap map(2);
  const Team both{{0, 1}, 0, AttentionExchange::pass_kv, {}};
  map.add(7, {20, 20});
  const Placement placement{7, {{0, 2}, {1, 6}}};
  map.append({7, 0, 8}, both, &placement);
  ASSERT_EQ(map.state_holder(7), 0);
  ASSERT_EQ(std::ranges::count(positions(map, 7, 1), 7), 1);
  map.append({7, 8, 3, 1}, both);
  EXPECT_EQ(map.state_holder(7), 1);
  map.shorten(7, 8);
  EXPECT_EQ(map.state_holder(7), 0);
  map.verify();
}

TEST(KvMap, LongDealtDecodeStaysOneRange) {
  OneTeamMap map(4);
  map.add(1, 1000);
  for (int64_t position = 0; position < 4000; ++position)
    map.append({1, position, 1, static_cast<int32_t>(position % 4)});
  EXPECT_EQ(map.ranges(1, 3), (std::vector<StridedRange>{{3, 1000, 4}}));
}

TEST(KvMap, HoldsEveryPositionOnceWhateverTheOwners) {
  OneTeamMap map(3);
  map.add(1, 200);
  map.append({1, 0, 17});
  for (int64_t position = 17; position < 60; ++position)
    map.append({1, position, 1, static_cast<int32_t>(position * position % 3)});
  map.append({1, 60, 5});

  std::vector<int64_t> all;
  for (int rank = 0; rank < 3; ++rank) {
    const auto mine = positions(map, 1, rank);
    EXPECT_EQ(static_cast<int64_t>(mine.size()), map.held(1, rank));
    all.insert(all.end(), mine.begin(), mine.end());
  }
  std::sort(all.begin(), all.end());
  ASSERT_EQ(all.size(), 65u);
  for (int64_t position = 0; position < 65; ++position) EXPECT_EQ(all[position], position);
}

TEST(KvMap, ChildrenBeginAtTheirParentsLength) {
  OneTeamMap map(2);
  map.add(1, 4);
  map.append({1, 0, 8});
  map.add(2, 3, 1);
  map.add(3, 3, 1);
  map.append({2, 8, 2});

  EXPECT_EQ(map.length(2), 10);
  EXPECT_EQ(map.length(3), 8);
  const Lineage lineage = map.lineage(2);
  EXPECT_EQ(std::vector(lineage.begin(), lineage.end()), (std::vector<SequenceId>{1, 2}));
  EXPECT_EQ(map.total_reserved(0), 10);
  EXPECT_THROW(map.append({1, 8, 1, 0}), InvalidArgument);
  EXPECT_THROW(map.remove(1), InvalidArgument);
  map.remove(2), map.remove(3), map.remove(1);
  EXPECT_EQ(map.total_reserved(0), 0);
}

TEST(KvMap, NeverHoldsMoreThanReserved) {
  OneTeamMap map(2);
  map.add(1, 2);
  map.append({1, 0, 3});  // chunks of one: rank 0 holds 0, rank 1 holds 1 and 2
  map.append({1, 3, 1, 0});
  EXPECT_THROW(map.append({1, 4, 1, 0}), InvalidArgument);
}

TEST(Stretches, AreCutWherePositionsOrSlotsJump) {
  using Stretches = std::vector<Stretch>;
  EXPECT_EQ(stretches({{0, 4, 1}, {8, 4, 2}}, {{5, 7}, {20, 26}}),
            (Stretches{{5, {0, 2, 1}}, {20, {2, 2, 1}}, {22, {8, 4, 2}}}));
  EXPECT_EQ(stretches({{3, 2, 7}}, {{0, 1}, {1, 1}, {4, 9}}),
            (Stretches{{0, {3, 1, 7}}, {4, {10, 1, 7}}}));
  EXPECT_EQ(stretches({}, {{0, 5}}), Stretches{});
  EXPECT_THROW(stretches({{0, 4, 1}}, {{0, 3}}), InvalidArgument);
}

/// Token by token, over random ranges and slots.
TEST(Stretches, HaveEveryTokenWhereItIs) {
  std::mt19937_64 random(11);
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int round = 0; round < 100; ++round) {
    std::vector<StridedRange> ranges;
    std::vector<int64_t> at;
    for (int64_t range = draw(0, 6); range > 0; --range) {
      ranges.push_back({draw(0, 50), draw(1, 9), draw(1, 5)});
      for (int64_t i = 0; i < ranges.back().count; ++i) at.push_back(ranges.back().position(i));
    }
    std::vector<SlotRange> slots;
    std::vector<int64_t> slot_of;
    for (int64_t begin = draw(0, 5); slot_of.size() < at.size() + 3; begin = slots.back().end + 4) {
      slots.push_back({begin, begin + draw(1, 7)});
      for (int64_t slot = begin; slot < slots.back().end; ++slot) slot_of.push_back(slot);
    }
    size_t token = 0;
    for (const auto& [slot, positions] : stretches(ranges, slots))
      for (int64_t i = 0; i < positions.count; ++i, ++token) {
        ASSERT_EQ(slot + i, slot_of[token]);
        ASSERT_EQ(positions.position(i), at.at(token));
      }
    ASSERT_EQ(token, at.size());
  }
}

TEST(IndicesBetween, AreThoseOfThePositions) {
  for (const StridedRange& range : {StridedRange{0, 10, 1}, {20, 5, 4}, {50, 1, 3}})
    for (int64_t begin = -2; begin < 55; ++begin)
      for (int64_t end = begin; end < 55; ++end) {
        const IndexRun found = indices_between(range, begin, end);
        for (int64_t i = 0; i < range.count; ++i)
          ASSERT_EQ(found.begin <= i && i < found.begin + found.count,
                    begin <= range.position(i) && range.position(i) < end)
              << i << " of " << begin << " to " << end;
      }
}

TEST(CountSeen, CountsThePairs) {
  const std::vector<StridedRange> keys{{0, 10, 1}, {20, 5, 4}, {50, 1, 1}, {7, 3, 3}};
  for (const kernels::Window window :
       {kernels::Window(), kernels::Window(1), kernels::Window(5), kernels::Window(30),
        kernels::Window::chunks_of(1), kernels::Window::chunks_of(7),
        kernels::Window::chunks_of(64)})
    for (int64_t begin = 0; begin < 60; begin += 3)
      for (int64_t end = begin; end < 60; end += 7) {
        int64_t pairs = 0;
        for (int64_t query = begin; query < end; ++query)
          for (const StridedRange& range : keys)
            for (int64_t i = 0; i < range.count; ++i) {
              const int64_t key = range.position(i);
              pairs += window.sees(query, key);
            }
        ASSERT_EQ(count_seen({begin, end}, keys, window), pairs)
            << begin << " to " << end << ", window " << window.tokens;
      }
}

/// What a rank keeps of a sequence does not grow with its length: prompts of one chunk each time,
/// then tokens dealt in turn.
TEST(KvMap, KeepsAsManyRangesForLongPromptsAsForShort) {
  for (const int num_ranks : {1, 4}) {
    std::vector<size_t> ranges;
    for (const int64_t prompt : {8192, 65536}) {
      OneTeamMap map(num_ranks);
      map.add(1, 70000);
      map.append({1, 0, prompt});
      for (int64_t i = 0; i < 500; ++i)
        map.append({1, prompt + i, 1, static_cast<int32_t>(i % num_ranks)});
      ranges.push_back(map.ranges(1, 0).size());
    }
    EXPECT_EQ(ranges[0], ranges[1]);
    EXPECT_LE(ranges[0], 3u);
  }
}

TEST(KvMap, TeamsHoldWhatTheyComputed) {
  KvMap map(4);
  map.add(1, {8, 0, 9, 20});
  map.append({1, 0, 8}, {{2, 0}});                                   // in the ring's order
  map.append({1, 8, 1, 1}, {{2, 0, 3}});                             // one that joins
  map.append({1, 9, 4, 0}, {.instances = {3, 0, 2}, .holders = 2});  // two that only hold
  EXPECT_EQ(map.ranges(1, 2), (std::vector<StridedRange>{{0, 2, 1}, {6, 2, 1}}));
  EXPECT_EQ(map.ranges(1, 0), (std::vector<StridedRange>{{2, 4, 1}, {8, 1, 1}}));
  EXPECT_EQ(map.ranges(1, 3), (std::vector<StridedRange>{{9, 4, 1}}));
  EXPECT_EQ(map.held(1, 1), 0);
  EXPECT_EQ(map.holders(1), (std::vector<int>{0, 2, 3}));
  EXPECT_EQ(map.total_reserved(2), 9);
}

TEST(KvMap, TeamsHaveAllHoldersAndKeepToWhatIsReserved) {
  KvMap map(3);
  map.add(1, {8, 8, 3});
  map.append({1, 0, 4}, {{0, 1}});
  EXPECT_THROW(map.append({1, 4, 1, 0}, {{0, 2}}), InvalidArgument);  // 1 holds keys
  map.add(2, {8, 8, 3}, 1);
  EXPECT_THROW(map.append({2, 4, 1, 0}, {{2}}), InvalidArgument);  // the parent's are on 0 and 1
  EXPECT_EQ(map.holders(2), (std::vector<int>{0, 1}));
  const Team others_hold{.instances = {2, 0, 1}, .holders = 2};
  map.append({2, 4, 3}, others_hold);
  EXPECT_THROW(map.append({2, 7, 1}, others_hold), InvalidArgument);
  EXPECT_THROW(map.add(3, {8, 8}), InvalidArgument);
}

TEST(KvMap, VirtualRanksHoldEqualParts) {
  KvMap map(2, 4);
  map.add(1, {40, 40});
  map.append({1, 0, 16, PassSequence::balanced, 8}, team_of_all(2));
  for (int virtual_rank = 0; virtual_rank < 4; ++virtual_rank) {
    EXPECT_EQ(map.held(1, 0, virtual_rank), 2);
    EXPECT_EQ(map.ranges(1, 1, virtual_rank),
              (std::vector<StridedRange>{{4 + virtual_rank, 2, 7 - 2 * virtual_rank}}));
  }
  EXPECT_THROW(map.add(2, {42, 42}), InvalidArgument);
}

TEST(KvMap, SaysWhetherEachTokenIsHeldOnce) {
  KvMap map(2);
  map.add(1, {4, 4});
  map.append({1, 0, 7}, team_of_all(2));
  map.add(2, {4, 4}, 1);
  map.append({2, 7, 3}, team_of_all(2));
  EXPECT_NO_THROW(map.verify());
  const SequenceState state = map.state(2);
  for (const std::vector<StridedRange>& first : std::vector<std::vector<StridedRange>>{
           {}, {{7, 3}}, {{8, 1, 1}, {8, 1, 1}}, {{6, 1}}, {{9, 2}}}) {
    SequenceState broken = state;
    broken.held[0] = first;
    map.set_state(2, broken);
    EXPECT_THROW(map.verify(), InvalidArgument);
  }
  map.set_state(2, state);
  EXPECT_NO_THROW(map.verify());
}

TEST(KvMap, TakesTheStateOfVirtualRanks) {
  KvMap map(2, 4), told(2, 4);
  map.add(1, {12, 12});
  map.append({1, 0, 16, PassSequence::balanced, 8}, team_of_all(2));
  map.append({1, 16, 1, 3, 8}, team_of_all(2));
  told.set_state(1, map.state(1));
  EXPECT_NO_THROW(told.verify());
  EXPECT_EQ(told.length(1), 17);
  EXPECT_EQ(told.total_reserved(1), 12);
  for (int instance = 0; instance < 2; ++instance)
    for (int virtual_rank = 0; virtual_rank < 4; ++virtual_rank)
      EXPECT_EQ(told.ranges(1, instance, virtual_rank), map.ranges(1, instance, virtual_rank));
}

TEST(KvMap, RefusesGapsAndStrangers) {
  OneTeamMap map(1);
  map.add(1, 10);
  EXPECT_THROW(map.append({1, 1, 1}), InvalidArgument);
  EXPECT_THROW(map.length(2), InvalidArgument);
  EXPECT_THROW(map.add(1, 10), InvalidArgument);
}

}  // namespace
}  // namespace pecia::parallel
