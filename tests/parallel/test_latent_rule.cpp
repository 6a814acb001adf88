// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/ranks/parallel/latent_rule.hpp"

namespace pecia::parallel {
namespace {

constexpr LatentHead deepseek_v3{512, 128, 64, 128};

bool expands(int64_t rows, int64_t cached, int ranks, bool keys_travel) {
  LatentLoad load;
  load.add(rows, cached);
  return expands_latents(deepseek_v3, load, ranks, keys_travel);
}

TEST(LatentRule, CountsRowsKeysAndPairs) {
  LatentLoad load;
  load.add(4, 10), load.add(1, 5);
  EXPECT_EQ(load.rows, 5);
  EXPECT_EQ(load.keys, 20);
  EXPECT_EQ(load.pairs, (11 + 12 + 13 + 14) + 6);
  EXPECT_EQ(deepseek_v3.absorbed_per_pair(), 1088);
  EXPECT_EQ(deepseek_v3.expanded_per_pair(), 320);
}

/// On one rank a row that is absorbed costs as much as a key that is expanded.
TEST(LatentRule, ExpandsPromptsAndAbsorbsAnswers) {
  EXPECT_TRUE(expands(1, 0, 1, false));
  EXPECT_TRUE(expands(4096, 0, 1, false));
  EXPECT_FALSE(expands(1, 100, 1, false));
  EXPECT_FALSE(expands(1, 1 << 20, 1, false));
  // 768 multiplications a pair are saved, and 131072 a cached key are spent: 171 rows.
  EXPECT_FALSE(expands(170, 1 << 20, 1, false));
  EXPECT_TRUE(expands(171, 1 << 20, 1, false));
}

/// Each of N ranks expands all keys that travel: N times 171 rows, but half of the first chunk's pairs.
TEST(LatentRule, WeighsThatKeysAreExpandedOnEveryRank) {
  EXPECT_FALSE(expands(4 * 170, 1 << 20, 4, true));
  EXPECT_TRUE(expands(4 * 171, 1 << 20, 4, true));
  EXPECT_FALSE(expands(1000, 0, 4, true));
  EXPECT_TRUE(expands(1100, 0, 4, true));  // 768 · rows² / 8 against 131072 · rows · 3 / 4
  EXPECT_TRUE(expands(1, 0, 4, false)) << "queries travel";
}

}  // namespace
}  // namespace pecia::parallel
