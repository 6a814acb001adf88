// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "lib/core/error.hpp"
#include "lib/parallel/kv_map.hpp"

namespace pecia::parallel {
namespace {

std::vector<int64_t> positions(const KvMap& map, SequenceId sequence, int rank) {
  std::vector<int64_t> found;
  for (const StridedRange& range : map.ranges(sequence, rank))
    for (int64_t i = 0; i < range.count; ++i) found.push_back(range.position(i));
  return found;
}

TEST(KvMap, FollowsPrefillInChunksAndDealtDecode) {
  KvMap map(2);
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

TEST(KvMap, LongDealtDecodeStaysOneRange) {
  KvMap map(4);
  map.add(1, 1000);
  for (int64_t position = 0; position < 4000; ++position)
    map.append({1, position, 1, static_cast<int32_t>(position % 4)});
  EXPECT_EQ(map.ranges(1, 3), (std::vector<StridedRange>{{3, 1000, 4}}));
}

TEST(KvMap, HoldsEveryPositionOnceWhateverTheOwners) {
  KvMap map(3);
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
  KvMap map(2);
  map.add(1, 4);
  map.append({1, 0, 8});
  map.add(2, 3, 1);
  map.add(3, 3, 1);
  map.append({2, 8, 2});

  EXPECT_EQ(map.length(2), 10);
  EXPECT_EQ(map.length(3), 8);
  EXPECT_EQ(map.lineage(2), (std::vector<SequenceId>{1, 2}));
  EXPECT_EQ(map.total_reserved(), 10);
  EXPECT_THROW(map.append({1, 8, 1, 0}), InvalidArgument);
  EXPECT_THROW(map.remove(1), InvalidArgument);
  map.remove(2), map.remove(3), map.remove(1);
  EXPECT_EQ(map.total_reserved(), 0);
}

TEST(KvMap, NeverHoldsMoreThanReserved) {
  KvMap map(2);
  map.add(1, 2);
  map.append({1, 0, 3});  // chunks of one: rank 0 holds 0, rank 1 holds 1 and 2
  map.append({1, 3, 1, 0});
  EXPECT_THROW(map.append({1, 4, 1, 0}), InvalidArgument);
}

TEST(RunsOf, CutsAtLongStretchesOnly) {
  const std::vector<StridedRange> ranges{
      {0, 100, 1}, {300, 64, 1}, {400, 3, 4}, {413, 1, 1}, {500, 70, 1}};
  EXPECT_EQ(runs_of(ranges), (std::vector<IndexRun>{{0, 100}, {100, 64}, {164, 4}, {168, 70}}));
  EXPECT_TRUE(runs_of({}).empty());
}

TEST(CountBetween, CountsWhatIsThere) {
  const std::vector<StridedRange> ranges{{0, 10, 1}, {20, 5, 4}, {50, 1, 1}};  // 20 24 28 32 36
  std::vector<int64_t> all(16);
  fill_positions(ranges, all.data());
  for (int64_t begin = -2; begin < 55; ++begin)
    for (int64_t end = begin; end < 55; ++end)
      ASSERT_EQ(
          count_between(ranges, begin, end),
          std::count_if(all.begin(), all.end(), [&](int64_t p) { return begin <= p && p < end; }))
          << begin << " to " << end;
}

TEST(KvMap, RefusesGapsAndStrangers) {
  KvMap map(1);
  map.add(1, 10);
  EXPECT_THROW(map.append({1, 1, 1}), InvalidArgument);
  EXPECT_THROW(map.length(2), InvalidArgument);
  EXPECT_THROW(map.add(1, 10), InvalidArgument);
}

}  // namespace
}  // namespace pecia::parallel
