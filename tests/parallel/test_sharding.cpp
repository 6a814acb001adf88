// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <map>

#include "lib/ranks/parallel/pass_modes.hpp"
#include "lib/ranks/parallel/sharding.hpp"

namespace pecia::parallel {
namespace {

TEST(RowPart, IsContiguousAndEvenToOneRow) {
  EXPECT_EQ(row_part({0, 5}, 3, 0), (RowRange{0, 1}));
  EXPECT_EQ(row_part({0, 5}, 3, 1), (RowRange{1, 3}));
  EXPECT_EQ(row_part({0, 5}, 3, 2), (RowRange{3, 5}));
  EXPECT_EQ(row_part({10, 11}, 2, 0), (RowRange{10, 10}));
  for (const int64_t rows : {0, 1, 7, 64, 1001})
    for (int count = 1; count <= 9; ++count) {
      int64_t next = 3;
      for (int index = 0; index < count; ++index) {
        const RowRange part = row_part({3, 3 + rows}, count, index);
        EXPECT_EQ(part.begin, next);
        EXPECT_GE(part.size(), rows / count);
        EXPECT_LE(part.size(), (rows + count - 1) / count);
        next = part.end;
      }
      EXPECT_EQ(next, 3 + rows);
    }
}

TEST(Sharding, OfTwoTimesTwoRanksIsWhatItsNameSays) {
  const auto of = [](Sharding sharding, int sp_index, int tp_index) {
    return sharded_rows(sharding, {2, 2, sp_index, tp_index}, 8);
  };
  using Rows = std::vector<RowRange>;
  EXPECT_EQ(of(Sharding::base, 1, 0).own, (Rows{{4, 8}}));
  EXPECT_EQ(of(Sharding::base, 1, 1).linear, (RowRange{4, 8}));
  EXPECT_EQ(of(Sharding::sp_tp, 1, 0).own, (Rows{{4, 6}}));
  EXPECT_EQ(of(Sharding::sp_tp, 1, 1).own, (Rows{{6, 8}}));
  EXPECT_EQ(of(Sharding::sp_tp, 1, 1).linear, (RowRange{4, 8}));
  EXPECT_EQ(of(Sharding::shift, 1, 0).own, (Rows{{0, 8}}));
  EXPECT_EQ(of(Sharding::gathered, 1, 0).own, (Rows{{2, 4}}));  // shard 0 · 2 + 1
  EXPECT_EQ(of(Sharding::gathered, 0, 1).own, (Rows{{4, 6}}));

  EXPECT_EQ(weight_cut(Sharding::base, {2, 2, 1, 0}), (WeightCut{2, 0}));
  EXPECT_EQ(weight_cut(Sharding::sp_tp, {2, 2, 1, 1}), (WeightCut{2, 1}));
  EXPECT_EQ(weight_cut(Sharding::shift, {2, 2, 1, 0}), (WeightCut{4, 1}));
  EXPECT_EQ(weight_cut(Sharding::gathered, {2, 2, 1, 1}), (WeightCut{1, 0}));
}

TEST(Sharding, OfSomeRowsLeavesThemWhereTheyAre) {
  using Rows = std::vector<RowRange>;
  const ShardedRows all{{4, 12}, {{4, 8}, {8, 12}}, {{4, 6}, {10, 12}}};
  const std::vector<int64_t> some{1, 5, 8, 10, 11};
  const ShardedRows part = all.part_of(some);
  EXPECT_EQ(part.linear, (RowRange{1, 5}));
  EXPECT_EQ(part.blocks, (Rows{{1, 2}, {2, 5}}));
  EXPECT_EQ(part.own, (Rows{{1, 2}, {3, 5}}));
  EXPECT_EQ(all.part_of({}).own, (Rows{{0, 0}, {0, 0}}));
  EXPECT_EQ(places_in(all.own, some), (Rows{{1, 4}}));  // 5, 10 and 11 lie side by side
  EXPECT_EQ(places_in({&all.linear, 1}, some), (Rows{{1, 2}, {4, 5}, {6, 8}}));
  EXPECT_TRUE(places_in(all.own, {}).empty());
  // What places_in copies is what own_index finds then.
  for (const Sharding sharding : {Sharding::base, Sharding::sp_tp, Sharding::shift})
    for (int rank = 0; rank < 4; ++rank) {
      const ShardedRows rows = sharded_rows(sharding, {2, 2, rank / 2, rank % 2}, 1100);
      std::vector<int64_t> wanted, copied;
      for (int64_t row = 3; row < 1100; row += 1 + row % 7) wanted.push_back(row);
      for (const RowRange& places : places_in(rows.own, wanted))
        for (int64_t place = places.begin; place < places.end; ++place) copied.push_back(place);
      int64_t next = 0;
      for (int64_t i = 0; i < std::ssize(wanted); ++i)
        if (const int64_t index = rows.own_index(wanted[i]); index >= 0) {
          EXPECT_EQ(copied.at(next), index);
          EXPECT_EQ(rows.part_of(wanted).own_index(i), next++);
        }
      EXPECT_EQ(std::ssize(copied), next);
    }
}

TEST(RowBlocks, AreOfFullSizeOrTwoOrOne) {
  using Rows = std::vector<RowRange>;
  EXPECT_EQ(row_blocks({0, 1100}, 2), (Rows{{0, 550}, {550, 1100}}));
  EXPECT_EQ(row_blocks({0, 1600}, 2), (Rows{{0, 533}, {533, 1066}, {1066, 1600}}));
  EXPECT_EQ(row_blocks({10, 522}, 4), (Rows{{10, 266}, {266, 522}}));
  EXPECT_EQ(row_blocks({0, 511}, 4), (Rows{{0, 511}}));
  EXPECT_EQ(row_blocks({7, 7}, 4), (Rows{{7, 7}}));
  EXPECT_EQ(row_blocks({0, 100000}, 1), (Rows{{0, 100000}}));
  EXPECT_EQ(row_blocks({0, 100000}, 2).size(), 4u);
}

TEST(Sharding, OwnsOfEachBlockOnePart) {
  const ShardedRows rows = sharded_rows(Sharding::sp_tp, {2, 2, 1, 1}, 1024);
  using Rows = std::vector<RowRange>;
  EXPECT_EQ(rows.blocks, (Rows{{512, 768}, {768, 1024}}));
  EXPECT_EQ(rows.own, (Rows{{640, 768}, {896, 1024}}));
  EXPECT_EQ(rows.num_own(), 256);
  EXPECT_EQ(rows.own_index(640), 0);
  EXPECT_EQ(rows.own_index(767), 127);
  EXPECT_EQ(rows.own_index(768), -1);
  EXPECT_EQ(rows.own_index(896), 128);
  EXPECT_EQ(rows.own_index(1024), -1);
}

TEST(Sharding, MultipliesEveryRowByEveryPartOfTheWeightsOnce) {
  for (const Sharding sharding :
       {Sharding::base, Sharding::sp_tp, Sharding::shift, Sharding::gathered})
    for (const int sp : {1, 2, 3})
      for (const int tp : {1, 2, 4})
        for (const int64_t rows : {0, 1, 5, 30, 3000}) {
          std::map<std::pair<int64_t, int>, int> products;  // (row, part)
          std::map<int64_t, int> owners;
          int parts = 0;
          for (int sp_index = 0; sp_index < sp; ++sp_index)
            for (int tp_index = 0; tp_index < tp; ++tp_index) {
              const BlockPlace place{sp, tp, sp_index, tp_index};
              const WeightCut cut = weight_cut(sharding, place);
              const ShardedRows part = sharded_rows(sharding, place, rows);
              parts = cut.count;
              for (int64_t row = part.linear.begin; row < part.linear.end; ++row)
                ++products[{row, cut.index}];
              ASSERT_EQ(part.own.size(), part.blocks.size());
              int64_t index = 0;
              for (const RowRange& own : part.own)
                for (int64_t row = own.begin; row < own.end; ++row) {
                  ++owners[row];
                  ASSERT_EQ(part.own_index(row), index++);
                }
              EXPECT_EQ(part.num_own(), index);
            }
          EXPECT_EQ(static_cast<int64_t>(products.size()), rows * parts);
          for (const auto& [product, times] : products) EXPECT_EQ(times, 1);
          EXPECT_EQ(static_cast<int64_t>(owners.size()), rows);
          const int copies = sharding == Sharding::base    ? tp
                             : sharding == Sharding::shift ? sp * tp
                                                           : 1;
          for (const auto& [row, times] : owners) EXPECT_EQ(times, copies);
        }
}

TEST(PassModes, ShiftsSmallPassesWhateverTheyDo) {
  PassModes modes;
  modes.prefill = Sharding::sp_tp;
  EXPECT_EQ(modes.sharding(1, false), Sharding::base);
  EXPECT_EQ(modes.sharding(1, true), Sharding::sp_tp);
  modes.shift_threshold = 8;
  EXPECT_EQ(modes.sharding(8, false), Sharding::shift);
  EXPECT_EQ(modes.sharding(9, false), Sharding::base);
  EXPECT_EQ(modes.sharding(8, true), Sharding::shift);
  EXPECT_EQ(modes.sharding(9, true), Sharding::sp_tp);
}

TEST(PassModes, GatherWeightsInLongPrefillPassesAlone) {
  const ModePair over_tp{{1, 1, 2}, PrefillMode::ulysses, DecodeMode::tp};
  PassModes modes = pass_modes(over_tp, {}, 100);
  EXPECT_EQ(modes.sharding(99, true), Sharding::sp_tp);
  EXPECT_EQ(modes.sharding(100, true), Sharding::gathered);
  EXPECT_EQ(modes.sharding(100, false), Sharding::base);
  EXPECT_EQ(pass_modes(over_tp, {}).sharding(1, true), Sharding::gathered);
  modes = pass_modes({{1, 2, 1}, PrefillMode::ulysses, DecodeMode::sp}, {}, 100);
  EXPECT_EQ(modes.sharding(1, true), Sharding::base) << "SP cuts rows, and no weights are gathered";
}

}  // namespace
}  // namespace pecia::parallel
