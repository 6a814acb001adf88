// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/support/block_formulas.hpp"

namespace pecia::parallel {
namespace {

// MHA: E = Hq · D = 64.
const BlockShape mha{64, 96, 8, 8, 8, 4};

TEST(BlockTraffic, OfAttentionIsTheDesignsCount) {
  constexpr int64_t width = 64, ffn = 96, bytes = 4;
  for (const int ranks : {2, 4, 8})
    for (const int64_t tokens : {64, 512}) {
      const int64_t sp_ntp_attention =
          (4 * width * width + 4 * tokens * width / ranks) * (ranks - 1) * bytes;
      const int64_t ffn_weights = 3 * width * ffn * (ranks - 1) * bytes;
      EXPECT_EQ(block_traffic(mha, Sharding::gathered, 1, ranks, tokens),
                sp_ntp_attention + ffn_weights);
      const int64_t sp_tp_attention = 2 * tokens * width * (ranks - 1) * bytes;
      EXPECT_EQ(block_traffic(mha, Sharding::sp_tp, 1, ranks, tokens), 2 * sp_tp_attention);
    }
}

TEST(BlockTraffic, OfAllReduceIsThatOfGatherAndScatter) {
  for (const int ranks : {2, 4, 8})
    EXPECT_EQ(block_traffic(mha, Sharding::base, 1, ranks, 160),
              block_traffic(mha, Sharding::sp_tp, 1, ranks, 160));
}

TEST(BlockTraffic, OfUlyssesSendsEveryKvHeadWhereItIsNeeded) {
  // 8 query heads over 2 KV heads on 4 ranks, 8 rows each: every other rank gets 2 query heads and
  // one KV head of K and V, and sends back 2 heads of the rows here.
  const BlockShape gqa{64, 96, 8, 2, 8, 4};
  const LayerTraffic traffic = layer_traffic(gqa, Sharding::base, {4, 1, 1, 0}, 32);
  EXPECT_EQ(traffic.heads, (8 * (2 + 2) * 3 + 24 * 2) * 8 * 4);
  EXPECT_EQ(traffic.total(), traffic.heads);
}

TEST(BlockTraffic, OfUlyssesFallsWithTheDegreeWhileTensorParallelismStays) {
  const auto per_rank = [](Sharding sharding, int sp, int tp) {
    return static_cast<double>(block_traffic(mha, sharding, sp, tp, 4096)) / (sp * tp);
  };
  const double ulysses = per_rank(Sharding::base, 8, 1) / per_rank(Sharding::base, 2, 1);
  EXPECT_NEAR(ulysses, (7.0 / 64) / (1.0 / 4), 1e-6);  // (N−1)/N² of the activations
  const double tensor = per_rank(Sharding::base, 1, 8) / per_rank(Sharding::base, 1, 2);
  EXPECT_NEAR(tensor, (7.0 / 8) / (1.0 / 2), 1e-6);  // (N−1)/N
}

TEST(LogitsTraffic, IsOfTheRowsThatOthersTake) {
  // 7 rows over 3 ranks: 2, 2 and 3 of them.
  EXPECT_EQ(logits_traffic(7, {3, 0}, 20), 5 * 20);
  EXPECT_EQ(logits_traffic(7, {3, 2}, 20), 4 * 20);
  EXPECT_EQ(logits_traffic(1, {4, 0}, 20) + logits_traffic(1, {4, 3}, 20), 20);
  EXPECT_EQ(logits_traffic(64, {8, 5}, 4 * 4096), 56 * 4 * 4096);
  EXPECT_EQ(logits_traffic(64, {1, 0}, 4 * 4096), 0);
}

TEST(BlockTraffic, OfOneRankIsNothing) {
  for (const Sharding sharding :
       {Sharding::base, Sharding::sp_tp, Sharding::shift, Sharding::gathered})
    EXPECT_EQ(block_traffic(mha, sharding, 1, 1, 100), 0);
}

}  // namespace
}  // namespace pecia::parallel
