// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/base/core/error.hpp"
#include "lib/ranks/parallel/heads.hpp"

namespace pecia::parallel {
namespace {

TEST(KvShard, IsTheWorkedExampleOfShiftParallelism) {
  // SP 3, TP 2, 6 heads: ranks (0,0) (0,1) (1,0) (1,1) (2,0) (2,1) have heads 0 3 1 4 2 5.
  std::vector<int64_t> heads;
  for (int sp_index = 0; sp_index < 3; ++sp_index)
    for (int tp_index = 0; tp_index < 2; ++tp_index)
      heads.push_back(head_shard(6, 6, 6, kv_shard(3, sp_index, tp_index)).q.begin);
  EXPECT_EQ(heads, (std::vector<int64_t>{0, 3, 1, 4, 2, 5}));
}

TEST(KvShard, LiesInsideTheRanksShardOverTp) {
  for (const int sp : {1, 2, 3, 4})
    for (const int tp : {1, 2, 4})
      for (int sp_index = 0; sp_index < sp; ++sp_index)
        for (int tp_index = 0; tp_index < tp; ++tp_index) {
          const HeadShard outer = head_shard(48, 48, tp, tp_index);
          const HeadShard inner = head_shard(48, 48, sp * tp, kv_shard(sp, sp_index, tp_index));
          EXPECT_LE(outer.q.begin, inner.q.begin);
          EXPECT_LE(inner.q.end, outer.q.end);
        }
}

TEST(HeadShard, GivesEachRankTheKvHeadsItsQueriesRead) {
  // 8 query heads over 2 KV heads.
  EXPECT_EQ(head_shard(8, 2, 1, 0), (HeadShard{{0, 8}, {0, 2}}));
  EXPECT_EQ(head_shard(8, 2, 2, 1), (HeadShard{{4, 8}, {1, 2}}));
  EXPECT_EQ(head_shard(8, 2, 4, 1), (HeadShard{{2, 4}, {0, 1}}));  // KV head 0 on two ranks
  EXPECT_EQ(head_shard(8, 2, 8, 7), (HeadShard{{7, 8}, {1, 2}}));
  EXPECT_EQ(head_shard(4, 1, 4, 3), (HeadShard{{3, 4}, {0, 1}}));  // MQA
}

TEST(HeadShard, CoversEveryHeadOnceAndKvHeadsEquallyOften) {
  for (const int64_t num_heads : {4, 8, 12, 24})
    for (const int64_t num_kv_heads : {1, 2, 3, 4, 12})
      for (int count = 1; count <= 8; ++count) {
        if (num_heads % num_kv_heads != 0 || !can_shard_heads(num_heads, num_kv_heads, count))
          continue;
        std::vector<int> seen(num_heads), kv_seen(num_kv_heads);
        for (int index = 0; index < count; ++index) {
          const HeadShard shard = head_shard(num_heads, num_kv_heads, count, index);
          for (int64_t head = shard.q.begin; head < shard.q.end; ++head) {
            ++seen[head];
            const int64_t kv_head = head / (num_heads / num_kv_heads);
            EXPECT_TRUE(kv_head >= shard.kv.begin && kv_head < shard.kv.end);
          }
          for (int64_t head = shard.kv.begin; head < shard.kv.end; ++head) ++kv_seen[head];
        }
        EXPECT_EQ(seen, std::vector<int>(num_heads, 1));
        const int copies = count > num_kv_heads ? count / static_cast<int>(num_kv_heads) : 1;
        EXPECT_EQ(kv_seen, std::vector<int>(num_kv_heads, copies));
      }
}

TEST(HeadShard, RefusesWhatCannotBeCut) {
  EXPECT_FALSE(can_shard_heads(9, 3, 2));
  EXPECT_TRUE(can_shard_heads(9, 3, 9));
  EXPECT_FALSE(can_shard_heads(12, 4, 6));  // 6 shards of 4 KV heads
  EXPECT_FALSE(can_shard_heads(8, 8, 0));
  EXPECT_THROW(head_shard(9, 3, 2, 0), InvalidArgument);
  EXPECT_THROW(head_shard(8, 8, 2, 2), InvalidArgument);
}

}  // namespace
}  // namespace pecia::parallel
