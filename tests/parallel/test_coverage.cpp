// SPDX-License-Identifier: Apache-2.0
/// Whatever the grid, the lengths and the history: every causal (query, key) pair of every head is
/// attended exactly once, by one rank.

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "lib/parallel/heads.hpp"
#include "lib/parallel/kv_map.hpp"
#include "lib/parallel/ring.hpp"
#include "lib/parallel/sharding.hpp"

namespace pecia::parallel {
namespace {

/// (sequence, query position, key position, query head) → times attended.
using Pairs = std::map<std::tuple<SequenceId, int64_t, int64_t, int64_t>, int>;

/// Of the runs of keys that lie in fragments of a cache, of one to three slots.
std::vector<int64_t> positions(const std::vector<StridedRange>& ranges) {
  std::vector<SlotRange> slots;
  for (int64_t begin = 0; begin < 1000; begin += 5) slots.push_back({begin, begin + begin % 3 + 1});
  std::vector<int64_t> found;
  for (const Stretch& stretch : stretches(ranges, slots))
    for (int64_t i = 0; i < stretch.positions.count; ++i)
      found.push_back(stretch.positions.position(i));
  return found;
}

struct Grid {
  int cp, sp, tp;
};

/// What every rank of the grid attends in a pass, as lib/context walks it: the block's rows with
/// the rank's shard of the heads, against the keys of each ring rank that visits.
Pairs attended(const std::vector<PassSequence>& pass, const KvMap& map, const Grid& grid,
               int64_t num_heads, int64_t num_kv_heads) {
  Pairs pairs;
  const int shards = grid.sp * grid.tp;
  for (int cp = 0; cp < grid.cp; ++cp)
    for (int sp = 0; sp < grid.sp; ++sp)
      for (int tp = 0; tp < grid.tp; ++tp) {
        const HeadShard heads =
            head_shard(num_heads, num_kv_heads, shards, kv_shard(grid.sp, sp, tp));
        for (int step = 0; step < grid.cp; ++step)
          for (const PassSequence& sequence : pass)
            for (const GlobalRange& rows : rows_of(sequence, grid.cp, cp))
              for (int64_t query = rows.begin; query < rows.end; ++query)
                for (const SequenceId member : map.lineage(sequence.sequence))
                  for (const int64_t key :
                       positions(map.ranges(member, visiting_rank(grid.cp, cp, step))))
                    if (key <= query)
                      for (int64_t head = heads.q.begin; head < heads.q.end; ++head)
                        ++pairs[{sequence.sequence, query, key, head}];
      }
  return pairs;
}

TEST(Coverage, EveryCausalPairOfEveryHeadIsAttendedOnce) {
  std::mt19937_64 random(20261121);
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  int tried = 0;
  while (tried < 60) {
    const Grid grid{static_cast<int>(draw(1, 5)), static_cast<int>(draw(1, 4)),
                    static_cast<int>(draw(1, 3))};
    const int64_t num_kv_heads = draw(1, 4), num_heads = num_kv_heads * draw(1, 4);
    if (!can_shard_heads(num_heads, num_kv_heads, grid.sp * grid.tp) ||
        !can_shard_heads(num_heads, num_kv_heads, grid.tp))
      continue;
    ++tried;
    KvMap map(grid.cp);
    map.add(1, 200), map.add(2, 200);
    bool forked = false;
    for (int round = 0; round < 4; ++round) {
      std::vector<PassSequence> pass;
      for (const SequenceId sequence : {1, 2, 3}) {
        if (!map.contains(sequence) || (sequence == 1 && forked)) continue;
        const bool decoding = map.length(sequence) > 0 && draw(0, 1) == 1;
        pass.push_back(
            {sequence, map.length(sequence), decoding ? 1 : draw(1, 13),
             decoding ? static_cast<int32_t>(draw(0, grid.cp - 1)) : PassSequence::balanced});
      }
      for (const PassSequence& sequence : pass) map.append(sequence);
      const Pairs pairs = attended(pass, map, grid, num_heads, num_kv_heads);
      int64_t causal = 0;
      for (const PassSequence& sequence : pass)
        for (int64_t i = 0; i < sequence.count; ++i) causal += sequence.first + i + 1;
      ASSERT_EQ(static_cast<int64_t>(pairs.size()), causal * num_heads)
          << "CP " << grid.cp << " SP " << grid.sp << " TP " << grid.tp;
      for (const auto& [pair, times] : pairs) ASSERT_EQ(times, 1);
      if (!forked && round == 1) {
        map.add(3, 200, 1);  // sees all of 1, which grows no more
        forked = true;
      }
    }
  }
}

TEST(Coverage, EveryRowMeetsEveryRanksHeadsInTheExchange) {
  std::mt19937_64 random(7);
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  int tried = 0;
  while (tried < 200) {
    const int sp = static_cast<int>(draw(1, 4)), tp = static_cast<int>(draw(1, 4));
    const int64_t num_kv_heads = draw(1, 8), num_heads = num_kv_heads * draw(1, 4);
    if (!can_shard_heads(num_heads, num_kv_heads, sp * tp) ||
        !can_shard_heads(num_heads, num_kv_heads, tp))
      continue;
    ++tried;
    const int64_t rows = draw(0, 20);
    for (const bool gathered : {false, true}) {
      std::map<std::pair<int64_t, int64_t>, int> sent;  // (row, head) → to how many ranks
      for (int i = 0; i < sp; ++i)
        for (int j = 0; j < tp; ++j) {
          const BlockPlace place{sp, tp, i, j};
          const Sharding sharding = gathered ? Sharding::gathered : Sharding::base;
          const RowRange own = sharded_rows(sharding, place, rows).linear;
          const WeightCut cut = weight_cut(sharding, place);
          const HeadShard held = head_shard(num_heads, num_kv_heads, cut.count, cut.index);
          for (int other = 0; other < (gathered ? sp * tp : sp); ++other) {
            const HeadShard wanted = head_shard(num_heads, num_kv_heads, sp * tp,
                                                gathered ? other : kv_shard(sp, other, j));
            ASSERT_GE(wanted.q.begin, held.q.begin);  // nobody is asked for what it lacks
            ASSERT_LE(wanted.q.end, held.q.end);
            ASSERT_GE(wanted.kv.begin, held.kv.begin);
            ASSERT_LE(wanted.kv.end, held.kv.end);
            for (int64_t row = own.begin; row < own.end; ++row)
              for (int64_t head = wanted.q.begin; head < wanted.q.end; ++head) ++sent[{row, head}];
          }
        }
      ASSERT_EQ(static_cast<int64_t>(sent.size()), rows * num_heads);
      for (const auto& [pair, times] : sent) ASSERT_EQ(times, 1);
    }
  }
}

}  // namespace
}  // namespace pecia::parallel
