// SPDX-License-Identifier: Apache-2.0
/// Whatever the grid, the lengths and the history: every causal (query, key) pair of every head is
/// attended exactly once, by one rank.

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "lib/ranks/parallel/heads.hpp"
#include "lib/ranks/parallel/kv_map.hpp"
#include "lib/ranks/parallel/ring.hpp"
#include "lib/ranks/parallel/sharding.hpp"
#include "tests/support/random_teams.hpp"

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

struct Block {
  int sp, tp;
};

/// What every rank attends in an iteration, as lib/model/attention walks it: its block's rows with the
/// rank's shard of the heads, against the keys of each instance of the team's ring.
Pairs attended(const std::vector<TeamPass>& teams, const KvMap& map, const Block& block,
               int64_t num_heads, int64_t num_kv_heads) {
  Pairs pairs;
  const int shards = block.sp * block.tp;
  for (const auto& [team, pass, placements] : teams)
    for (int index = 0; index < team.size(); ++index)
      for (int sp = 0; sp < block.sp; ++sp)
        for (int tp = 0; tp < block.tp; ++tp) {
          const HeadShard heads =
              head_shard(num_heads, num_kv_heads, shards, kv_shard(block.sp, sp, tp));
          for (int step = 0; step < team.size(); ++step) {
            const int instance = team.instances[visiting_rank(team.size(), index, step)];
            for (const PassSequence& sequence : pass)
              for (const GlobalRange& rows : rows_of(sequence, team, index))
                for (int64_t query = rows.begin; query < rows.end; ++query)
                  for (const SequenceId member : map.lineage(sequence.sequence))
                    for (const int64_t key : positions(map.ranges(member, instance)))
                      if (key <= query)
                        for (int64_t head = heads.q.begin; head < heads.q.end; ++head)
                          ++pairs[{sequence.sequence, query, key, head}];
          }
        }
  return pairs;
}

TEST(Coverage, EveryCausalPairOfEveryHeadIsAttendedOnceWhateverTeamsDidBefore) {
  constexpr uint64_t seed = 20261121;
  RecordProperty("seed", std::to_string(seed));
  int tried = 0, side_by_side = 0;
  for (uint64_t attempt = 0; tried < 60; ++attempt) {
    test::RandomTeams random(static_cast<int>(1 + attempt % 6), seed + attempt);
    const int instances = static_cast<int>(1 + attempt % 6);
    const Block block{static_cast<int>(random.number(1, 4)), static_cast<int>(random.number(1, 3))};
    const int64_t num_kv_heads = random.number(1, 4),
                  num_heads = num_kv_heads * random.number(1, 4);
    if (!can_shard_heads(num_heads, num_kv_heads, block.sp * block.tp) ||
        !can_shard_heads(num_heads, num_kv_heads, block.tp))
      continue;
    ++tried;
    KvMap map(instances);
    const std::vector<int64_t> reserved(instances, 200);
    std::vector<SequenceId> sequences{1, 2, 4};
    for (const SequenceId sequence : sequences) map.add(sequence, reserved);
    for (int round = 0; round < 6; ++round) {
      if (round == 3) map.add(3, reserved, 1), sequences = {2, 3, 4};  // 1 grows no more
      const std::vector<TeamPass> teams = random.draw(map, sequences);
      ASSERT_NO_THROW(check_teams(teams, instances));
      int64_t causal = 0;
      for (const auto& [team, pass, placements] : teams)
        for (const PassSequence& sequence : pass) {
          map.append(sequence, team);
          for (int64_t i = 0; i < sequence.count; ++i) causal += sequence.first + i + 1;
        }
      side_by_side += teams.size() > 1 ? 1 : 0;
      const Pairs pairs = attended(teams, map, block, num_heads, num_kv_heads);
      ASSERT_EQ(static_cast<int64_t>(pairs.size()), causal * num_heads)
          << instances << " instances, SP " << block.sp << " TP " << block.tp;
      for (const auto& [pair, times] : pairs) ASSERT_EQ(times, 1);
    }
  }
  EXPECT_GT(side_by_side, 50);
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
