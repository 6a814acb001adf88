// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "lib/base/core/error.hpp"
#include "lib/engine/schedule/pipeline.hpp"
#include "lib/engine/schedule/slot_needs.hpp"
#include "lib/ranks/parallel/ring.hpp"

namespace pecia::schedule {
namespace {

using testing::ElementsAre;

std::vector<int64_t> chunks_of(PipelinedPrompt prompt, const ChunkRule& rule) {
  std::vector<int64_t> chunks;
  while (prompt.planned < prompt.count) {
    chunks.push_back(chunk_of_equal_work(prompt, rule));
    EXPECT_GE(chunks.back(), 1);
    prompt.planned += chunks.back();
  }
  EXPECT_EQ(prompt.planned, prompt.count);
  return chunks;
}

TEST(ChunkOfEqualWork, BecomesShorterAsAttentionGrows) {
  ChunkRule rule{.row_work = 1, .pair_work = 0.01, .most = 4096, .chunks = 4};
  EXPECT_THAT(chunks_of({0, 300, 0}, rule), ElementsAre(118, 74, 59, 49));
  rule.pair_work = 0;
  EXPECT_THAT(chunks_of({0, 300, 0}, rule), ElementsAre(75, 75, 75, 75));
}

TEST(ChunkOfEqualWork, HasEqualWork) {
  const ChunkRule rule{.row_work = 3, .pair_work = 0.002, .most = 512, .least = 1, .unit = 4};
  double least = 1e300, most = 0;
  int64_t first = 1000;
  std::vector<int64_t> chunks = chunks_of({first, 20000, 0}, rule);
  EXPECT_LE(chunks.front(), 512);
  chunks.pop_back();  // what is left
  for (const int64_t count : chunks) {
    EXPECT_EQ(count % rule.unit, 0);
    const auto rows = static_cast<double>(count);
    const double work =
        rows * (rule.row_work + rule.pair_work * (static_cast<double>(first) + 0.5 * rows));
    least = std::min(least, work), most = std::max(most, work);
    first += count;
  }
  // A chunk is up to a unit longer, in which the last rows are the most work.
  const double of_unit = static_cast<double>(rule.unit) *
                         (rule.row_work + rule.pair_work * static_cast<double>(first));
  EXPECT_LE(most - least, of_unit);
}

TEST(ChunkOfEqualWork, KeepsToItsLimits) {
  const ChunkRule rule{
      .row_work = 1, .pair_work = 1, .most = 96, .least = 32, .unit = 8, .chunks = 1000};
  for (const int64_t count : {1, 7, 31, 32, 100, 5000}) {
    std::vector<int64_t> chunks = chunks_of({0, count, 0}, rule);
    EXPECT_LE(std::ranges::max(chunks), 96);
    chunks.pop_back();
    EXPECT_TRUE(std::ranges::is_sorted(chunks, std::greater()));
    for (const int64_t chunk : chunks) {
      EXPECT_GE(chunk, 32);
      EXPECT_EQ(chunk % rule.unit, 0);
    }
    if (count == 5000) {
      EXPECT_EQ(chunks.back(), 32);
    }
  }
  ChunkRule odd = rule;
  odd.most = 23;  // fewer than the least: whole units of these
  EXPECT_THAT(chunks_of({0, 50, 0}, odd), ElementsAre(16, 16, 16, 2));
  odd.most = 3;  // fewer than a unit
  EXPECT_THAT(chunks_of({0, 8, 0}, odd), ElementsAre(3, 3, 2));
  EXPECT_THROW(chunk_of_equal_work({0, 10, 0}, {.row_work = 0}), InvalidArgument);
}

/// 69 tokens in chunks of 48 and 21 take 36 slots on the second of two ranks, and 35 in chunks of 64.
TEST(SlotsOfStages, AreEnoughForCutsAfterAnyUnit) {
  SchedulerLimits limits;
  limits.ring_size = 2, limits.stages = 2, limits.max_batch_tokens = 64;
  const SlotNeeds needs(limits);
  const auto owned = [&](int64_t tokens, int rank) {
    const auto [early, late] = parallel::owned_chunks(tokens, limits.ring_size, rank);
    return early.size() + late.size();
  };
  for (int64_t tokens = 1; tokens <= 200; ++tokens)
    for (int64_t cut = 0; cut < tokens; cut += limits.chunk_unit())
      for (int rank = 0; rank < limits.ring_size; ++rank)
        EXPECT_LE(owned(cut, rank) + owned(tokens - cut, rank), needs.of_later_turn({}, tokens))
            << tokens << " tokens, cut at " << cut << ", rank " << rank;
}

TEST(AnswersOfGroup, IsAShareForEachStage) {
  EXPECT_EQ(answers_of_group(7, 3), 3);
  EXPECT_EQ(answers_of_group(8, 4), 2);
  EXPECT_EQ(answers_of_group(1, 4), 1);
  EXPECT_EQ(answers_of_group(0, 4), 0);
}

}  // namespace
}  // namespace pecia::schedule
