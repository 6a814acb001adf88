// SPDX-License-Identifier: Apache-2.0
/// Which keys go from which instance to which, where prompts are read by others than answer them.

#include <gtest/gtest.h>

#include "lib/base/core/error.hpp"
#include "lib/base/core/random.hpp"
#include "lib/ranks/parallel/key_copy.hpp"

namespace pecia::parallel {
namespace {

TEST(KeyCopy, TokensBetweenTwoPositionsKeepTheirPlaces) {
  const std::vector<StridedRange> held{{0, 4, 1}, {10, 3, 2}, {4, 4, 1}};  // 0–3, 10 12 14, 4–7
  EXPECT_EQ(held_between(held, 2, 12),
            (std::vector<HeldRun>{{2, {2, 2, 1}}, {4, {10, 1, 2}}, {7, {4, 4, 1}}}));
  EXPECT_EQ(held_between(held, 11, 14), (std::vector<HeldRun>{{5, {12, 1, 2}}}));
  EXPECT_TRUE(held_between(held, 8, 10).empty());
}

TEST(KeyCopy, AChunkIsDealtInTheOrderOfPositions) {
  KvMap map(4);
  map.add(7, {8, 8, 0, 0});
  map.add(8, {0, 0, 6, 10});
  const PassSequence rows{7, 0, 8};  // 0 has 0 1 6 7, 1 has 2 3 4 5
  map.append(rows, {{0, 1}, 0, AttentionExchange::pass_kv, {}});
  const auto copies = key_copies(map, 7, 8, 0, {{2, 3}, {3, 5}});
  ASSERT_EQ(copies.size(), 2u);
  EXPECT_EQ(copies[0].instance, 2);
  EXPECT_EQ(copies[0].places, (std::vector<int32_t>{2, 3}));
  ASSERT_EQ(copies[0].sources.size(), 2u);  // positions 0 1 2
  EXPECT_EQ(copies[0].sources[0].positions, (std::vector<StridedRange>{{0, 2, 1}}));
  EXPECT_EQ(copies[0].sources[1].positions, (std::vector<StridedRange>{{2, 1, 1}}));
  ASSERT_EQ(copies[1].sources.size(), 2u);  // positions 3 … 7
  EXPECT_EQ(copies[1].sources[0].positions, (std::vector<StridedRange>{{6, 2, 1}}));
  EXPECT_EQ(copies[1].sources[1].positions, (std::vector<StridedRange>{{3, 3, 1}}));
  const auto with_state = key_copies(map, 7, 8, 0, {{2, 3}, {3, 5}}, true);
  EXPECT_EQ(copies[0].state_from, SequenceState::nobody);
  EXPECT_EQ(copies[1].state_from, SequenceState::nobody) << "the prompt goes on";
  EXPECT_EQ(with_state[0].state_from, SequenceState::nobody);
  EXPECT_EQ(with_state[1].state_from, 0) << "0 has computed the last token";
  for (const KeyCopy& copy : copies) map.append(copy.rows(), copy.team());
  EXPECT_EQ(map.state_holder(8), 3);
  EXPECT_EQ(map.ranges(8, 2), (std::vector<StridedRange>{{0, 3, 1}}));
  EXPECT_EQ(map.ranges(8, 3), (std::vector<StridedRange>{{3, 5, 1}}));
  map.verify();
  EXPECT_THROW(key_copies(map, 7, 8, 0, {{2, 3}}), InvalidArgument);  // the copy has them already
}

/// Whatever the cuts: each token of each chunk goes to one place, from the one that holds it.
TEST(KeyCopy, EveryTokenTravelsOnce) {
  constexpr uint64_t seed = 20261129;
  RecordProperty("seed", std::to_string(seed));
  for (uint64_t attempt = 0; attempt < 200; ++attempt) {
    SCOPED_TRACE(attempt);
    uint64_t drawn = 0;
    const auto draw = [&](int64_t low, int64_t high) {
      return low + static_cast<int64_t>(uniform(seed + attempt, drawn++) *
                                        static_cast<double>(high - low + 1));
    };
    const auto readers = static_cast<int32_t>(draw(1, 4));
    const auto answering = static_cast<int32_t>(draw(1, 3));
    const int32_t all = readers + answering;
    const int64_t tokens = draw(1, 60);
    std::vector<int64_t> reading(all), kept(all);
    Team team{{}, 0, AttentionExchange::pass_kv, {}};
    for (int32_t i = 0; i < readers; ++i) reading[i] = tokens, team.instances.push_back(i);
    for (int32_t i = readers; i < all; ++i) kept[i] = tokens;
    KvMap map(all);
    map.add(1, reading), map.add(2, kept);
    std::vector<int> travelled(tokens);
    for (int64_t first = 0; first < tokens;) {
      const int64_t count = draw(1, tokens - first);
      map.append({1, first, count}, team);
      std::vector<KeptShare> shares;
      int64_t left = count;
      for (int32_t i = readers; i < all; ++i) {
        shares.push_back({i, i + 1 == all ? left : draw(0, left)});
        left -= shares.back().tokens;
      }
      for (const KeyCopy& copy : key_copies(map, 1, 2, first, shares)) {
        for (const KeySource& source : copy.sources)
          for (const StridedRange& range : source.positions)
            for (int64_t i = 0; i < range.count; ++i) {
              const int64_t position = range.position(i);
              ASSERT_TRUE(copy.first <= position && position < copy.first + copy.count);
              ++travelled.at(position);
            }
        map.append(copy.rows(), copy.team());
      }
      first += count;
      EXPECT_EQ(map.length(2), map.length(1));
      map.verify();
    }
    for (const int times : travelled) ASSERT_EQ(times, 1);
  }
}

}  // namespace
}  // namespace pecia::parallel
