// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "lib/ranks/parallel/halo.hpp"
#include "lib/ranks/parallel/kv_map.hpp"
#include "tests/support/random_teams.hpp"

namespace pecia::parallel {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(SeenThrough, IsTheWorkedExample) {
  const std::vector<StridedRange> of_rank_0{{0, 4, 1}, {12, 4, 1}}, of_rank_1{{4, 8, 1}};
  EXPECT_THAT(seen_through(3, {{4, 8}, {8, 12}}, of_rank_0), ElementsAre(IndexRun{2, 2}));  // 2 3
  EXPECT_THAT(seen_through(3, {{0, 4}, {12, 16}}, of_rank_1),
              ElementsAre(IndexRun{6, 2}));  // 10 11
  EXPECT_THAT(positions_of({{6, 2}}, of_rank_1), ElementsAre(StridedRange{10, 2, 1}));
}

TEST(SeenThrough, BeginsWithTheChunkOfTheFirstRow) {
  const auto chunks = kernels::Window::chunks_of(6);
  const std::vector<StridedRange> of_rank_0{{0, 4, 1}, {12, 4, 1}}, of_rank_1{{4, 8, 1}};
  EXPECT_THAT(seen_through(chunks, {{4, 8}, {8, 12}}, of_rank_0), ElementsAre(IndexRun{0, 4}));
  EXPECT_THAT(seen_through(chunks, {{0, 4}, {12, 16}}, of_rank_1), IsEmpty());
  EXPECT_THAT(rows_that_see(chunks, {{4, 8}, {8, 12}}, of_rank_0), ElementsAre(IndexRun{0, 2}));
}

TEST(SeenThrough, IsOnlyTheRowItselfWithAWindowOfOne) {
  EXPECT_THAT(seen_through(1, {{4, 6}}, {{0, 4, 1}}), IsEmpty());
  EXPECT_THAT(seen_through(1, {{4, 6}}, {{0, 9, 1}}), ElementsAre(IndexRun{4, 2}));
  EXPECT_THAT(seen_through(1, {}, {{0, 9, 1}}), IsEmpty());
  EXPECT_THAT(seen_through(1, {{5, 5}}, {{0, 9, 1}}), IsEmpty());
}

TEST(SeenThrough, TakesAWindowAsOneKeyMore) {
  EXPECT_THAT(seen_through(4, {{10, 11}}, {{0, 10, 1}}), ElementsAre(IndexRun{7, 3}));
  EXPECT_THAT(seen_through(100, {{10, 11}}, {{0, 20, 1}}), ElementsAre(IndexRun{0, 11}));
}

TEST(SeenThrough, JoinsWhatSeveralRowsSee) {
  // Rows 10 … 11 see 8 … 11, and row 12 sees 10 … 12; the range after it is touched at 20.
  EXPECT_THAT(seen_through(3, {{12, 13}, {10, 12}, {22, 23}}, {{0, 13, 1}, {20, 5, 1}}),
              ElementsAre(IndexRun{8, 8}));
}

TEST(RowsThatSee, IsTheWorkedExample) {
  EXPECT_THAT(rows_that_see(3, {{4, 8}}, {{0, 4, 1}, {12, 4, 1}}), ElementsAre(IndexRun{0, 2}));
  EXPECT_THAT(rows_that_see(3, {{0, 4}, {12, 16}}, {{4, 8, 1}}), ElementsAre(IndexRun{4, 2}));
}

TEST(RowsThatSee, KnowsKeysFartherApartThanTheWindow) {
  // Keys 0, 10, 20, 30: rows 10 11 and 20 21 of 5 … 21.
  EXPECT_THAT(rows_that_see(2, {{5, 22}}, {{0, 4, 10}}),
              ElementsAre(IndexRun{5, 2}, IndexRun{15, 2}));
  EXPECT_THAT(rows_that_see(2, {{5, 10}, {12, 20}}, {{0, 4, 10}}), IsEmpty());
}

/// Positions of tokens, by their place.
std::vector<int64_t> all_of(const std::vector<StridedRange>& ranges) {
  std::vector<int64_t> positions;
  for (const StridedRange& range : ranges)
    for (int64_t i = 0; i < range.count; ++i) positions.push_back(range.position(i));
  return positions;
}

TEST(Halo, HasEachKeyThatARowSeesOnceAndNoOther) {
  constexpr uint64_t seed = 20261125;
  RecordProperty("seed", std::to_string(seed));
  int64_t sent = 0, not_sent = 0;
  for (uint64_t attempt = 0; attempt < 40; ++attempt) {
    const int instances = static_cast<int>(1 + attempt % 6);
    test::RandomTeams random(instances, seed + attempt);
    KvMap map(instances);
    const std::vector<int64_t> reserved(instances, 300);
    std::vector<SequenceId> known{1, 2};
    for (const SequenceId sequence : known) map.add(sequence, reserved);
    for (int round = 0; round < 8; ++round) {
      if (round == 4) map.add(3, reserved, 1), map.add(4, reserved, 1), known = {2, 3, 4};
      for (const auto& [team, pass, placements] : random.draw(map, known)) {
        for (const PassSequence& rows : pass) map.append(rows, team);
        const int64_t tokens = random.number(1, 40);
        const kernels::Window window =
            attempt % 2 == 0 ? kernels::Window(tokens) : kernels::Window::chunks_of(tokens);
        for (const SequenceId keys : known) {
          HaloSequence of;
          std::vector<std::set<int64_t>> seen(team.size());  // positions, by rank
          for (int rank = 0; rank < team.size(); ++rank) {
            of.keys.push_back(map.ranges(keys, team.instances[rank]));
            of.rows.emplace_back();
            for (const PassSequence& sequence : pass)
              for (const SequenceId member : map.lineage(sequence.sequence))
                if (member == keys)
                  for (const GlobalRange& range : rows_of(sequence, team, rank)) {
                    of.rows.back().push_back(range);
                    for (int64_t row = range.begin; row < range.end; ++row)
                      for (int64_t key = std::max<int64_t>(0, window.first_seen(row)); key <= row;
                           ++key)
                        seen[rank].insert(key);
                  }
          }
          for (int rank = 0; rank < team.size(); ++rank) {
            const Halo halo = halo_of({of}, team.size(), rank, window);
            for (int other = 0; other < team.size(); ++other) {
              std::vector<int64_t> expected;
              for (const int64_t key : all_of(of.keys[rank]))
                if (other != rank && seen[other].contains(key)) expected.push_back(key);
              const auto found = positions_of(halo.leaving[other][0], of.keys[rank]);
              ASSERT_EQ(all_of(found), expected) << "from " << rank << " to " << other;
              ASSERT_EQ(count_tokens(halo.leaving[other][0]), std::ssize(expected));
              std::vector<int64_t> seeing, found_rows;  // rows of the other rank
              int64_t row = 0;
              for (const GlobalRange& range : of.rows[other])
                for (int64_t at = range.begin; at < range.end; ++at, ++row)
                  if (std::ranges::any_of(all_of(of.keys[rank]),
                                          [&](int64_t key) { return window.sees(at, key); }))
                    seeing.push_back(row);
              for (const IndexRun& run : rows_that_see(window, of.rows[other], of.keys[rank]))
                for (int64_t i = 0; i < run.count; ++i) found_rows.push_back(run.begin + i);
              ASSERT_EQ(found_rows, seeing) << "rows of " << other << ", keys of " << rank;
              ASSERT_EQ(halo.leaving[other][0],
                        halo_of({of}, team.size(), other, window).coming[rank][0]);
              sent += std::ssize(expected);
              not_sent +=
                  other == rank ? 0 : std::ssize(all_of(of.keys[rank])) - std::ssize(expected);
            }
          }
        }
      }
    }
  }
  EXPECT_GT(sent, 1000);
  EXPECT_GT(not_sent, 1000);
}

TEST(HaloGoesStraight, WhereNoRankGetsMoreThanHalfOfWhatTheRingBrings) {
  // 64 tokens in chunks of 4 on 8 ranks: 56 come to each, and before each of its two chunks there
  // are window − 1 keys that it may need, but none before the first.
  const Team eight = team_of_all(8);
  const std::vector<PassSequence> prompt{{1, 0, 64}};
  const std::vector<int64_t> held(8, 8);
  EXPECT_TRUE(halo_goes_straight(prompt, eight, 1, held));
  EXPECT_TRUE(halo_goes_straight(prompt, eight, 15, held));   // 28 of rank 4's at most
  EXPECT_FALSE(halo_goes_straight(prompt, eight, 16, held));  // 30
  // With cached tokens the ring brings more, and the window sees no more.
  EXPECT_TRUE(halo_goes_straight({{1, 64, 64}}, eight, 16, std::vector<int64_t>(8, 16)));
}

TEST(HaloGoesStraight, WhereEachRankIsNextToEveryOther) {
  for (const int ranks : {2, 3})
    EXPECT_TRUE(halo_goes_straight({{1, 0, 12}}, team_of_all(ranks), 1000,
                                   std::vector<int64_t>(ranks, 12 / ranks)));
  EXPECT_FALSE(halo_goes_straight({{1, 0, 12}}, team_of_all(4), 1000, std::vector<int64_t>(4, 3)));
}

}  // namespace
}  // namespace pecia::parallel
