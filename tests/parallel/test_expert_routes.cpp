// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/ranks/parallel/expert_routes.hpp"
#include "lib/ranks/parallel/heads.hpp"

namespace pecia::parallel {
namespace {

using Indices = std::vector<int32_t>;

TEST(HeldExperts, AreTheOnesOfTheWorkedExample) {
  const auto held = [](int rank) { return held_experts(10, {1, 0, 4, rank}); };
  EXPECT_EQ(held(0), (RowRange{0, 2}));
  EXPECT_EQ(held(1), (RowRange{2, 5}));
  EXPECT_EQ(held(3), (RowRange{7, 10}));
  EXPECT_EQ(held_experts(10, {4, 1}), (RowRange{0, 10})) << "they are cut, not dealt out";
}

TEST(RowsTaking, AreTheOnesOfTheWorkedExample) {
  const std::vector<ExpertChoice> choices = {{0, 1}, {4, 1}, {1, 1}, {2, 1}, {4, 1}, {5, 1}};
  EXPECT_EQ(rows_taking(choices, 2, {4, 6}), (Indices{0, 2}));
  EXPECT_EQ(rows_taking(choices, 2, {3, 4}), Indices{});
  EXPECT_EQ(rows_taking({}, 2, {0, 6}), Indices{});
}

/// Each row's experts are multiplied once: by the rank itself or one peer, and in the sum over
/// ranks with the same rows.
TEST(ExpertPeers, WithTheRanksThatHaveTheSameRowsHoldEachExpertOnce) {
  constexpr int64_t experts = 13, rows = 1537;
  for (const auto sharding : {Sharding::base, Sharding::sp_tp, Sharding::shift, Sharding::gathered})
    for (const int sp : {1, 2, 3})
      for (const int tp : {1, 2, 4}) {
        std::vector<std::vector<int>> times(rows, std::vector<int>(experts));
        for (int sp_index = 0; sp_index < sp; ++sp_index)
          for (int tp_index = 0; tp_index < tp; ++tp_index) {
            const BlockPlace own{sp, tp, sp_index, tp_index, sp * tp};
            const auto held = held_experts(experts, weight_cut(sharding, own));
            const ShardedRows of_own = sharded_rows(sharding, own, rows);
            for (const BlockPlace& peer : expert_peers(sharding, own)) {
              const ShardedRows of_peer = sharded_rows(sharding, peer, rows);
              ASSERT_EQ(of_peer.blocks.size(), of_own.blocks.size()) << "they go block by block";
              for (int64_t row = of_peer.linear.begin; row < of_peer.linear.end; ++row)
                for (int64_t expert = held.begin; expert < held.end; ++expert) ++times[row][expert];
            }
          }
        for (int64_t row = 0; row < rows; ++row)
          for (int64_t expert = 0; expert < experts; ++expert)
            ASSERT_EQ(times[row][expert], 1) << "SP " << sp << " × TP " << tp << ", row " << row;
      }
}

TEST(ExpertPeers, AreInTheOrderOfTheirGroup) {
  const BlockPlace own{2, 3, 1, 2, 6};
  const auto of_sp = expert_peers(Sharding::base, own);
  ASSERT_EQ(of_sp.size(), 2u);
  EXPECT_EQ(of_sp[0].sp_index, 0);
  EXPECT_EQ(of_sp[0].tp_index, 2);
  const auto of_block = expert_peers(Sharding::gathered, own);
  ASSERT_EQ(of_block.size(), 6u);
  for (int rank = 0; rank < 6; ++rank)
    EXPECT_EQ(kv_shard(2, of_block[rank].sp_index, of_block[rank].tp_index), rank);
  EXPECT_EQ(expert_peers(Sharding::shift, own).size(), 1u);
}

}  // namespace
}  // namespace pecia::parallel
